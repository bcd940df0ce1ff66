// Of Host: endpoints, handshakes, the end of sessions. Leases and requests are in host_calls.cc.
#include "service/host.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "base/check.h"

namespace pmstore::service {
namespace {

// Passes a listener's calls on, with the endpoint that they came through.
class EndpointAcceptor final : public fabric::Acceptor {
 public:
  EndpointAcceptor(Host& host, Endpoint& endpoint) : host_(host), endpoint_(endpoint) {}
  Result<std::vector<std::byte>> on_hello(uint64_t token,
                                          std::span<const std::byte> hello) override {
    return host_.on_hello(endpoint_, token, hello);
  }
  void on_connected(uint64_t token, std::unique_ptr<fabric::Connection> connection) override {
    host_.on_connected(endpoint_, token, std::move(connection));
  }
  void on_abandoned(uint64_t token) override { host_.on_abandoned(endpoint_, token); }

 private:
  Host& host_;
  Endpoint& endpoint_;
};

Welcome welcome_to(const Session& session, uint32_t lease_ms) {
  const Endpoint& endpoint = *session.endpoint;
  Welcome welcome;
  welcome.epoch = session.service->epoch();
  welcome.request_region = session.peer->request_region();
  welcome.lease_ms = session.leased ? lease_ms : 0;
  welcome.service = session.service->traits().id;
  welcome.domain = static_cast<uint8_t>(endpoint.persistence.domain);
  welcome.landing = static_cast<uint8_t>(endpoint.persistence.landing);
  welcome.native_flush = endpoint.persistence.native_flush;
  return welcome;
}

}  // namespace

SessionName name_of(const Session& session) {
  return {session.service->traits().name, session.client, session.endpoint->name};
}

Status HostOptions::check() const {
  if (lease_ms == 0) {
    return make_error(ErrorCode::kInvalidArgument, "a server needs a lease of at least 1 ms");
  }
  if (message_bytes >= kLeastMessageBytes) return {};
  return make_error(ErrorCode::kInvalidArgument,
                    fmt::format("{} bytes are too few for the messages of a server: give it at "
                                "least {}",
                                message_bytes, kLeastMessageBytes));
}

Host::Host(base::Executor& executor, const HostOptions& options)
    : executor_(executor), options_(options) {
  PMSTORE_CHECK(options.check(), "a lease or memory of nothing would end every session");
}

Host::~Host() { shut_down(); }

// ---- services and endpoints ----

void Host::add(Service& service) {
  PMSTORE_CHECK(endpoints_.empty() && !service_of(service.traits().id),
                "a host knows its services before it accepts, each once");
  PMSTORE_CHECK(service.traits().max_sessions > 0, "a service without places serves nobody");
  service.host_ = this;
  service.slot_ = services_.size();
  services_.push_back(&service);
}

void Host::decline(ServiceId id, Error why) { declined_.emplace(id, std::move(why)); }

Result<Service*> Host::service_of(ServiceId id) const {
  for (Service* const service : services_) {
    if (service->traits().id == id) return service;
  }
  if (const auto found = declined_.find(id); found != declined_.end()) return found->second;
  return make_error(
      ErrorCode::kUnsupported,
      fmt::format("this server has no service {}; use a server that has it", raw(id)));
}

base::Task<Result<fabric::Uri>> Host::listen(fabric::Uri uri) {
  auto endpoint = std::make_unique<Endpoint>();
  endpoint->uri = uri;
  PMSTORE_CO_TRY(endpoint->device, fabric::open_device(uri.scheme, executor_, options_.devices));
  // What the fabric can do shows on a connection; one to itself, where the provider has it.
  if (uri.scheme == fabric::Scheme::kVerbs || uri.scheme == fabric::Scheme::kLocal) {
    auto probe = co_await endpoint->device->loopback();
    if (!probe) co_return std::move(probe.error());
    endpoint->capabilities = (*probe)->capabilities();
  }
  const fabric::Capabilities& fabric = endpoint->capabilities;
  endpoint->persistence = {
      options_.domain,
      fabric.cpu_moves_data ? persist::WriteLanding::kCpu : options_.device_landing,
      fabric.native_flush};
  for (Service* const service : services_) {
    auto part = co_await service->open(*endpoint);
    if (!part) co_return std::move(part.error());
    endpoint->parts.push_back(std::move(*part));
  }
  endpoint->acceptor = std::make_unique<EndpointAcceptor>(*this, *endpoint);
  PMSTORE_CO_TRY(endpoint->listener, endpoint->device->listen(uri, *endpoint->acceptor));
  endpoint->uri = endpoint->listener->uri();
  endpoint->name = endpoint->uri.to_string();
  endpoints_.push_back(std::move(endpoint));
  co_return endpoints_.back()->uri;
}

// ---- handshake ----

Result<std::vector<std::byte>> Host::on_hello(Endpoint& endpoint, uint64_t token,
                                              std::span<const std::byte> hello) {
  auto answer = accept(endpoint, token, hello);
  if (!answer) tell_refused(endpoint, hello, answer.error());
  return answer;
}

Result<std::vector<std::byte>> Host::accept(Endpoint& endpoint, uint64_t token,
                                            std::span<const std::byte> message) {
  PMSTORE_TRY(const Hello hello, decode_hello(message));
  if (stopped_) return make_error(ErrorCode::kDisconnected, "the server is stopping");
  PMSTORE_TRY(const std::shared_ptr<Session> session, begin(endpoint, token, hello));
  Service& service = *session->service;
  PMSTORE_TRY_STATUS(make_place(service));
  PMSTORE_TRY(const auto body, service.admit(*session, message.subspan(sizeof hello)));
  session->leased = is_leased(*session);
  sessions_[session->number] = session;
  handshakes_[{&endpoint, token}] = session.get();
  ++service.sessions_;
  PMSTORE_CHECK(service.sessions_ <= service.traits().max_sessions, "sessions are bounded");
  if (session->leased) watch();
  return encode(welcome_to(*session, options_.lease_ms), body);
}

bool Host::is_leased(const Session& session) const {
  const Service& service = *session.service;
  return service.needs_lease(session) ||
         (!service.traits().quiet_gives_way && !session.endpoint->device->notices_dead_peers());
}

void Host::look_at_lease(Session& session) {
  if (session.ended) return;
  session.leased = is_leased(session);
  if (session.leased) watch();
}

Result<std::shared_ptr<Session>> Host::begin(Endpoint& endpoint, uint64_t token,
                                             const Hello& hello) {
  PMSTORE_TRY(Service* const service, service_of(hello.service));
  if (is_full()) end_silent_holders();
  if (is_full() && service->traits().listed) {
    return make_error(ErrorCode::kBackPressure,
                      fmt::format("requests and answers fill the {} MiB that this server has for "
                                  "them; try again later, or start it with more "
                                  "--message-memory",
                                  options_.message_bytes >> 20));
  }
  std::shared_ptr<Session> session = service->make_session();
  session->service = service;
  session->endpoint = &endpoint;
  session->client = hello.client;
  session->number = ++hellos_;
  session->token = token;
  const fabric::RpcOptions& rpc = service->traits().rpc ? *service->traits().rpc : options_.rpc;
  fabric::RpcMemory* const counted =
      endpoint.uri.scheme == fabric::Scheme::kVerbs ? nullptr : &messages_;
  PMSTORE_TRY(session->peer,
              fabric::RpcPeer::create(*endpoint.device, rpc, hello.reply_region, *this, counted));
  session->peer->owner = session.get();
  return session;
}

Session* Host::oldest_hello(const Service& service) const {
  Session* oldest = nullptr;
  for (const auto& [key, session] : handshakes_) {
    if (session->service != &service) continue;
    if (oldest == nullptr || session->number < oldest->number) oldest = session;
  }
  return oldest;
}

Status Host::make_place(Service& service) {
  if (service.sessions_ < service.traits().max_sessions) return {};
  // A client whose handshake has not ended keeps no other client out.
  Session* leaves = oldest_hello(service);
  if (leaves == nullptr && service.traits().quiet_gives_way) {
    for (const auto& [number, session] : sessions_) {
      if (session->service != &service) continue;
      if (leaves == nullptr || session->work.last_call < leaves->work.last_call) {
        leaves = session.get();
      }
    }
  }
  if (leaves != nullptr) {
    end(*leaves, SessionEnd::kReplaced);
    return {};
  }
  return make_error(
      ErrorCode::kBackPressure,
      fmt::format(
          "all {} places for {} sessions are taken; try again later, or start the server with "
          "more (pmstored --most-clients)",
          service.traits().max_sessions, service.traits().name));
}

void Host::tell_refused(const Endpoint& endpoint, std::span<const std::byte> hello,
                        const Error& why) {
  if (options_.observer == nullptr) return;
  // As far as it came; the hellos of earlier versions had 64 bits of a client at the same place.
  Hello head;
  if (!hello.empty()) std::memcpy(&head, hello.data(), std::min(hello.size(), sizeof head));
  SessionName name{"unknown", head.client.low, endpoint.name};
  if (head.magic == kMagic && head.version == kVersion && hello.size() >= sizeof head) {
    name.client = head.client;
    if (const auto service = service_of(head.service)) name.kind = (*service)->traits().name;
  }
  options_.observer->on_refused(name, why);
}

void Host::on_connected(Endpoint& endpoint, uint64_t token,
                        std::unique_ptr<fabric::Connection> connection) {
  const auto found = handshakes_.find({&endpoint, token});
  if (found == handshakes_.end()) return;  // ended meanwhile: destroys the connection
  Session& session = *found->second;
  handshakes_.erase(found);
  PMSTORE_CHECK(!session.ended && !session.connected, "a handshake ends once");
  session.connected = true;
  session.work.begin(executor_.now_ns());
  session.work.last_call = calls_;
  ++session.service->counters_.sessions;
  if (session.service->traits().listed && options_.observer != nullptr) {
    options_.observer->on_session(name_of(session));
  }
  session.peer->attach(std::move(connection));
}

void Host::on_abandoned(Endpoint& endpoint, uint64_t token) {
  const auto found = handshakes_.find({&endpoint, token});
  if (found != handshakes_.end()) end(*found->second, SessionEnd::kDisconnected);
}

// ---- the end of a session ----

void Host::end(Session& ending, std::optional<SessionEnd> why) {
  const std::shared_ptr<Session> session = ending.shared_from_this();
  Service& service = *session->service;
  service.finish();  // it may end this session
  if (session->ended) return;
  session->ended = true;
  if (!session->connected) handshakes_.erase({session->endpoint, session->token});
  const size_t known = sessions_.erase(session->number);
  PMSTORE_CHECK(known == 1 && service.sessions_ > 0, "only a session that was admitted ends");
  --service.sessions_;
  session->disconnect();
  if (why && session->goodbye) why = SessionEnd::kGoodbye;
  service.on_ended(*session, why);
  if (!why || !session->connected || !service.traits().listed) return;
  if (options_.observer != nullptr) options_.observer->on_ended(name_of(*session), *why);
}

void Host::end_silent_holders() {
  constexpr uint64_t kLittle = 64 * 1024;
  constexpr uint64_t kLookAgainNs = 100'000'000;
  const uint64_t now_ns = executor_.now_ns();
  if (looked_for_holders_ns_ != 0 && now_ns - looked_for_holders_ns_ < kLookAgainNs) return;
  looked_for_holders_ns_ = now_ns;
  std::vector<std::shared_ptr<Session>> holders;
  for (const auto& [number, session] : sessions_) {
    if (!session->work.silent() || session->peer->held_bytes() <= kLittle) continue;
    const fabric::Arrivals arrivals = session->peer->connection()->arrivals();
    if (arrivals == fabric::Arrivals::kSome) continue;  // it calls
    if (arrivals == fabric::Arrivals::kNone && session->peer->calls_in_progress() == 0) {
      session->peer->on_idle();
    } else {
      // Where arrivals are unknown the connection has said so already, if it is idle.
      holders.push_back(session);
    }
  }
  std::sort(holders.begin(), holders.end(), [](const auto& one, const auto& other) {
    return one->work.last_call < other->work.last_call;
  });
  const uint64_t enough = options_.message_bytes / 8 * 7;
  for (const std::shared_ptr<Session>& holder : holders) {
    if (messages_.held_bytes <= enough) return;
    if (!holder->ended) end(*holder, SessionEnd::kFull);
  }
}

void Host::on_peer_gone(fabric::RpcPeer& peer, const Error& why) {
  Session& session = *static_cast<Session*>(peer.owner);
  const bool malformed = why.code == ErrorCode::kProtocol;
  if (malformed) ++session.service->counters_.malformed;
  end(session, malformed ? SessionEnd::kMalformed : SessionEnd::kDisconnected);
}

void Host::stop() {
  stopped_ = true;
  for (const auto& endpoint : endpoints_) endpoint->listener.reset();
  while (!sessions_.empty()) {
    const std::shared_ptr<Session> next = sessions_.begin()->second;
    end(*next, std::nullopt);
  }
}

void Host::shut_down() {
  stopped_ = true;
  for (const auto& endpoint : endpoints_) endpoint->listener.reset();
  watching_ = {};
  handshakes_.clear();
  for (const auto& [number, session] : sessions_) {
    session->ended = true;
    session->disconnect();  // a suspended handler may keep the session
    --session->service->sessions_;
  }
  sessions_.clear();
  services_.clear();  // they may go
}

}  // namespace pmstore::service
