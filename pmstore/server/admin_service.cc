#include "pmstore/server/admin_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "fabric/message.h"
#include "pmstore/layout/admin_protocol.h"
#include "pmstore/server/server_state.h"

namespace pmstore::internal {
namespace {

// An administrator's requests are a few bytes.
constexpr uint32_t kRequestRingBytes = 64 * 1024;

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

std::string session_json(const SessionReport& session, uint64_t now_ns) {
  const auto ms_since = [now_ns](uint64_t then_ns) { return (now_ns - then_ns) / 1'000'000; };
  std::string text = fmt::format(
      R"({{"id": "{:016x}", "kind": "{}", "via": "{}", "age_ms": {}, "idle_ms": {}, "calls": {})",
      session.client, session.kind, json_text(session.via), ms_since(session.begun_ns),
      ms_since(session.worked_ns), session.calls);
  if (session.kind == "store") {
    text += fmt::format(R"(, "ring": {}, "ring_used_bytes": {}, "transactions": {}, "locks": {})",
                        session.ring, session.ring_used_bytes, session.commits, session.locks);
  } else if (session.kind == "producer") {
    text += fmt::format(R"(, "log": {})", session.log);
  }
  return text + "}";
}

}  // namespace

bool is_admin_hello(std::span<const std::byte> hello) {
  uint32_t magic = 0;
  if (hello.size() < sizeof magic) return false;
  std::memcpy(&magic, hello.data(), sizeof magic);
  return magic == kAdminMagic;
}

Result<std::vector<std::byte>> AdminService::on_hello(Endpoint& endpoint, uint64_t token,
                                                      std::span<const std::byte> bytes) {
  AdminHello hello;
  hello.version = 0;
  std::memcpy(&hello, bytes.data(), std::min(bytes.size(), sizeof hello));
  if (hello.version != kAdminVersion) {
    return make_error(ErrorCode::kVersionMismatch,
                      fmt::format("this server speaks admin protocol version {}; use a pmstore of "
                                  "the same release",
                                  kAdminVersion));
  }
  if (bytes.size() != sizeof hello) {
    return make_error(ErrorCode::kProtocol, "a malformed admin hello");
  }
  fabric::RpcOptions rpc;
  rpc.request_ring_bytes = kRequestRingBytes;
  PMSTORE_TRY(auto peer, fabric::RpcPeer::create(*endpoint.device, rpc, hello.reply_region, *this));
  AdminAnswer answer;
  answer.request_region = peer->request_region();
  if (sessions_.size() >= kMaxSessions) end(sessions_.front().get());
  handshakes_[{&endpoint, token}] = peer.get();
  sessions_.push_back(std::move(peer));
  PMSTORE_CHECK(sessions_.size() <= kMaxSessions, "admin sessions are bounded");
  std::vector<std::byte> message(sizeof answer);
  std::memcpy(message.data(), &answer, sizeof answer);
  return message;
}

bool AdminService::has_handshake(Endpoint& endpoint, uint64_t token) const {
  return handshakes_.contains({&endpoint, token});
}

void AdminService::on_connected(Endpoint& endpoint, uint64_t token,
                                std::unique_ptr<fabric::Connection> connection) {
  const auto found = handshakes_.find({&endpoint, token});
  if (found == handshakes_.end()) return;
  fabric::RpcPeer* const peer = found->second;
  handshakes_.erase(found);
  peer->attach(std::move(connection));
}

void AdminService::on_abandoned(Endpoint& endpoint, uint64_t token) {
  const auto found = handshakes_.find({&endpoint, token});
  if (found != handshakes_.end()) end(found->second);
}

void AdminService::end(const fabric::RpcPeer* peer) {
  std::erase_if(handshakes_, [peer](const auto& entry) { return entry.second == peer; });
  const auto found = std::find_if(sessions_.begin(), sessions_.end(),
                                  [peer](const auto& each) { return each.get() == peer; });
  PMSTORE_CHECK(found != sessions_.end(), "an admin session ends once");
  const std::unique_ptr<fabric::RpcPeer> gone = std::move(*found);
  sessions_.erase(found);
}

void AdminService::on_peer_gone(fabric::RpcPeer& peer, const Error& why) {
  if (why.code == ErrorCode::kProtocol) ++core_.totals.malformed;
  end(&peer);
}

void AdminService::on_call(fabric::RpcPeer& peer, fabric::RpcCall call) {
  const auto found = std::find_if(sessions_.begin(), sessions_.end(),
                                  [&peer](const auto& each) { return each.get() == &peer; });
  PMSTORE_CHECK(found != sessions_.end(), "only a session's peer calls");
  sessions_.splice(sessions_.end(), sessions_, found);
  fabric::MessageReader reader(call.request());
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
          bytes_of(AdminKickReply{static_cast<uint32_t>(core_.kick(request.client))}));
    }
  }
  ++core_.totals.malformed;
  call.reply_error(
      make_error(ErrorCode::kProtocol, "a malformed request; the connection is closed"));
  end(&peer);
}

void AdminService::serve_sessions(fabric::RpcCall& call, uint32_t from) {
  const std::vector<SessionReport> sessions = core_.sessions();
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
