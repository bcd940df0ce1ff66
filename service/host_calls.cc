// Of Host: the requests of sessions, their leases, and what administrators ask about sessions.
#include <utility>

#include "base/check.h"
#include "fabric/message.h"
#include "persist/remote_writer.h"
#include "service/host.h"

namespace pmstore::service {
namespace {

constexpr unsigned kLeaseTicks = 4;

}  // namespace

template <typename Action>
void Host::for_each_session(Action action) {
  for (auto at = sessions_.begin(); at != sessions_.end();) {
    const std::shared_ptr<Session> session = at->second;
    action(*session);
    at = sessions_.upper_bound(session->number);
  }
}

// ---- requests ----

void Host::on_call(fabric::RpcPeer& peer, fabric::RpcCall call) {
  // The session may end while it is served.
  const auto session = static_cast<Session*>(peer.owner)->shared_from_this();
  PMSTORE_CHECK(!session->ended && session->connected, "only a session's own connection calls");
  count(*session);
  if (is_full()) [[unlikely]] {
    end_silent_holders();
  }
  PMSTORE_CHECK(!session->ended, "who calls is not silent");
  serve(*session, std::move(call));
}

void Host::on_waiting(fabric::RpcPeer& peer, uint16_t method, std::span<const std::byte> request) {
  if (request.size() < sizeof(RequestPrefix)) return;
  const auto& session = *static_cast<const Session*>(peer.owner);
  PMSTORE_CHECK(!session.ended, "the connection of a session that has ended tells nothing");
  session.service->on_waiting(method, request.subspan(sizeof(RequestPrefix)));
}

void Host::count(Session& session) {
  ++session.work.calls;
  session.work.last_call = ++calls_;
  ++session.service->counters_.calls;
  watch();
}

void Host::serve(Session& session, fabric::RpcCall call) {
  Service& service = *session.service;
  if (call.method() == persist::kPersistWriteMethod) {
    return service.on_persist_write(session, std::move(call));
  }
  fabric::MessageReader reader(call.request());
  const auto prefix = reader.get<RequestPrefix>();
  if (reader.failed()) return drop_malformed(session, call);
  if (prefix.epoch != service.epoch()) {
    return call.reply_error(
        make_error(ErrorCode::kDisconnected, "the request is for another epoch; connect again"));
  }
  if (prefix.known_through > session.known_through) {
    if (!service.on_known_through(session, prefix.known_through)) {
      return drop_malformed(session, call);
    }
    session.known_through = prefix.known_through;
  }
  const bool ping = call.method() == kPingMethod;
  if (!ping && call.method() != kGoodbyeMethod) {
    const auto body = call.request().subspan(sizeof prefix);
    return service.on_call(session, std::move(call), body);
  }
  if (!reader.complete()) return drop_malformed(session, call);
  if (ping) {
    ++session.work.pings;
  } else {
    session.goodbye = true;
  }
  call.reply({});
}

void Host::drop_malformed(Session& session, fabric::RpcCall& call) {
  ++session.service->counters_.malformed;
  call.reply_error(
      make_error(ErrorCode::kProtocol, "a malformed request; the connection is closed"));
  if (!session.ended) end(session, SessionEnd::kMalformed);
}

void Host::tell_failure(const Error& why) {
  if (std::exchange(failure_told_, true) || options_.observer == nullptr) return;
  options_.observer->on_failure(why);
}

void Host::warn(const std::string& what) {
  if (options_.observer != nullptr) options_.observer->on_warning(what);
}

// ---- leases ----

base::Task<void> Host::watch_sessions() {
  watching_sessions_ = true;
  const uint64_t tick_ns = uint64_t{options_.lease_ms} * 1'000'000 / kLeaseTicks;
  do {
    co_await executor_.sleep_for(tick_ns);
  } while (look_at_sessions());
  watching_sessions_ = false;
}

// False: no session has a lease, and none has sent anything since the last look.
bool Host::look_at_sessions() {
  bool anything = false;
  for_each_session([&](Session& session) {
    const bool heard = session.work.look(executor_.now_ns(), session.active > 0);
    anything |= heard || session.leased;
    if (!session.leased || session.work.silent_looks <= kLeaseTicks) return;
    ++session.service->counters_.silent;
    end(session, SessionEnd::kSilent);
  });
  return anything;
}

// ---- administrators ----

size_t Host::kick(ClientId client) {
  size_t kicked = 0;
  for_each_session([&](Session& session) {
    if (session.client != client || !session.connected) return;
    if (!session.service->traits().listed) return;
    end(session, SessionEnd::kKicked);
    ++kicked;
  });
  return kicked;
}

std::vector<SessionReport> Host::reports() const {
  std::vector<SessionReport> found;
  for (const auto& [number, session] : sessions_) {
    const Service& service = *session->service;
    if (!session->connected || !service.traits().listed) continue;
    SessionReport& report = found.emplace_back();
    report.kind = service.traits().name;
    report.client = session->client;
    report.via = session->endpoint->name;
    report.begun_ns = session->work.begun_ns;
    report.worked_ns = session->work.worked_ns;
    report.calls = session->work.calls;
    service.describe(*session, report);
  }
  return found;
}

}  // namespace pmstore::service
