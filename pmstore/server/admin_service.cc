#include "pmstore/server/admin_service.h"

#include <fmt/format.h>

#include <algorithm>

#include "fabric/message.h"
#include "pmstore/layout/admin_protocol.h"
#include "pmstore/server/server_state.h"
#include "service/host.h"

namespace pmstore::internal {
namespace {

// An administrator's requests are a few bytes.
constexpr uint32_t kRequestRingBytes = 64 * 1024;

std::string session_json(const SessionReport& session, uint64_t now_ns) {
  const auto ms_since = [now_ns](uint64_t then_ns) { return (now_ns - then_ns) / 1'000'000; };
  std::string text = fmt::format(
      R"({{"id": "{}", "kind": "{}", "via": "{}", "age_ms": {}, "idle_ms": {}, "calls": {})",
      session.client.to_string(), session.kind, json_text(session.via), ms_since(session.begun_ns),
      ms_since(session.worked_ns), session.calls);
  if (session.kind == "store") {
    if (session.ring) {
      text += fmt::format(R"(, "ring": {}, "ring_used_bytes": {})", *session.ring,
                          session.ring_used_bytes);
    }
    text += fmt::format(R"(, "transactions": {}, "locks": {})", session.commits, session.locks);
  } else if (session.kind == "producer") {
    text += fmt::format(R"(, "log": {})", session.log);
  }
  return text + "}";
}

}  // namespace

AdminService::AdminService(ServerCore& core)
    : Service({.id = service::ServiceId::kAdmin,
               .name = "admin",
               .max_sessions = kMaxSessions,
               .quiet_gives_way = true,
               .listed = false,
               .rpc = fabric::RpcOptions{.request_ring_bytes = kRequestRingBytes}}),
      core_(core) {}

uint64_t AdminService::epoch() const { return core_.store->catalog().header().epoch; }

Result<std::vector<std::byte>> AdminService::admit(service::Session&,
                                                   std::span<const std::byte> body) {
  if (!body.empty()) return make_error(ErrorCode::kProtocol, "a malformed admin hello");
  return std::vector<std::byte>();
}

void AdminService::on_call(service::Session& session, fabric::RpcCall call,
                           std::span<const std::byte> body) {
  fabric::MessageReader reader(body);
  switch (static_cast<AdminMethod>(call.method())) {
    case AdminMethod::kStat: {
      if (!reader.complete()) break;
      const std::string text = admin_stat_json(core_);
      return call.reply(std::as_bytes(std::span(text)));
    }
    case AdminMethod::kSessions: {
      const auto request = reader.get<AdminSessionsRequest>();
      if (!reader.complete()) break;
      return serve_sessions(call, request.from);
    }
    case AdminMethod::kKick: {
      const auto request = reader.get<AdminKickRequest>();
      if (!reader.complete()) break;
      return call.reply(
          service::bytes_of(AdminKickReply{static_cast<uint32_t>(host().kick(request.client))}));
    }
  }
  host().drop_malformed(session, call);
}

void AdminService::serve_sessions(fabric::RpcCall& call, uint32_t from) {
  const std::vector<SessionReport> sessions = host().reports();
  const uint64_t now_ns = core_.executor.now_ns();
  std::string items;
  uint32_t at = from;
  constexpr size_t kFrame = 64;  // for the text around the items
  const size_t room = std::min<size_t>(call.reply_room().size(), kAdminReplyBytes);
  while (at < sessions.size()) {
    const std::string item = session_json(sessions[at], now_ns);
    if (items.size() + item.size() + kFrame > room) break;
    items += (items.empty() ? "" : ", ") + item;
    ++at;
  }
  const std::string text =
      fmt::format(R"({{"next": {}, "sessions": [{}]}})", at < sessions.size() ? at : 0, items);
  call.reply(std::as_bytes(std::span(text)));
}

}  // namespace pmstore::internal
