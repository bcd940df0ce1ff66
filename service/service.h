// Service: what a server does for one kind of session. A Host has any number of them, finds the one
// that a hello names, and calls it: about a new session, about its requests, about its end.
//
// The host does what is the same for all: handshakes, places, leases, pings, the epoch of requests,
// the end of a session that sends what does not decode, kicks, reports. docs/service.md tells what
// a new service implements. Threads: the host's executor. Lifetimes: a service outlives its host,
// or at least Host::shut_down() and Host::close_endpoints().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/task.h"
#include "fabric/capabilities.h"
#include "fabric/device.h"
#include "fabric/rpc.h"
#include "fabric/uri.h"
#include "persist/strategy.h"
#include "service/hello.h"
#include "service/session.h"
#include "service/session_observer.h"

namespace pmstore::service {

class Host;

// What a service has registered at an endpoint. It goes before the endpoint's device.
class EndpointPart {
 public:
  virtual ~EndpointPart() = default;
};

// One fabric on which a host listens. Members go in reverse: the listener first, the device last.
struct Endpoint {
  fabric::Uri uri;
  std::string name;  // the URI as text, for sessions that came through it
  std::unique_ptr<fabric::Device> device;
  fabric::Capabilities capabilities;
  persist::PersistCapability persistence;
  std::vector<std::unique_ptr<EndpointPart>> parts;  // of the services, by Service::slot()
  std::unique_ptr<fabric::Acceptor> acceptor;
  std::unique_ptr<fabric::Listener> listener;
};

struct ServiceTraits {
  static constexpr size_t kUnbounded = SIZE_MAX;

  ServiceId id{};
  std::string_view name;  // SessionName::kind
  // Sessions at the same time; kUnbounded: the service bounds them itself. The oldest session whose
  // handshake is not over gives its place to a new one; without one there is BackPressure.
  size_t max_sessions = kUnbounded;
  bool quiet_gives_way = false;  // no BackPressure: the session that was quiet longest ends
  bool listed = true;            // sessions are reported, observed and kicked
  std::optional<fabric::RpcOptions> rpc = {};  // instead of HostOptions::rpc
};

struct ServiceCounters {
  uint64_t sessions = 0;  // that have connected
  uint64_t silent = 0;    // that were ended by their lease
  uint64_t malformed = 0;
  uint64_t calls = 0;
};

class Service {
 public:
  explicit Service(const ServiceTraits& traits) : traits_(traits) {}
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;
  virtual ~Service() = default;

  const ServiceTraits& traits() const { return traits_; }
  const ServiceCounters& counters() const { return counters_; }
  // Sessions that have not ended, with those whose handshake is not over.
  size_t sessions() const { return sessions_; }
  size_t slot() const { return slot_; }

  // ---- called by the host ----

  // The epoch of what is served; the host refuses requests of another one.
  virtual uint64_t epoch() const = 0;
  virtual std::shared_ptr<Session> make_session() const { return std::make_shared<Session>(); }
  // May this session's silence keep something from others? Where the fabric does not notice dead
  // peers, every session has a lease, unless quiet ones give way anyway.
  virtual bool needs_lease(const Session&) const { return false; }
  // Decides about a session whose peer is made: gives the body of the welcome, or why not. Protocol
  // when `body`, of the hello, does not decode. It may end other sessions. After an error the
  // session is destroyed, without on_ended().
  virtual Result<std::vector<std::byte>> admit(Session& session,
                                               std::span<const std::byte> body) = 0;
  // A request but a ping or goodbye, of the right epoch. `body` is behind its prefix. Answers now
  // or later, or calls Host::drop_malformed().
  virtual void on_call(Session& session, fabric::RpcCall call, std::span<const std::byte> body) = 0;
  // A hint: several requests wait, and on_call() for this one comes soon, if nothing is wrong with
  // it. `body` is behind its prefix, and the client may still change it. For asking for memory
  // that the answer needs; bad input is ignored here. Answers nothing and ends no session.
  virtual void on_waiting(uint16_t /*method*/, std::span<const std::byte> /*body*/) {}
  // The client says for the first time that it knows the outcomes of its numbers through this one.
  // False: it cannot, so the request is malformed. By default a service numbers nothing.
  virtual bool on_known_through(Session&, uint64_t /*number*/) { return false; }
  // A persistent write (persist::PersistService). By default malformed.
  virtual void on_persist_write(Session& session, fabric::RpcCall call);
  // Answers what waits for a drain. Called before a session of the service ends; it may end
  // sessions.
  virtual void finish() {}
  // The session has ended: its connection is destroyed. `why` is empty when the host stops.
  virtual void on_ended(Session&, std::optional<SessionEnd> /*why*/) {}
  // Adds what the service knows of the session.
  virtual void describe(const Session&, SessionReport&) const {}

 protected:
  Host& host() const { return *host_; }
  // Called by the host: registers what sessions may reach at an endpoint whose device and
  // capabilities are known. Unsupported: the service does not fit the fabric. By default nothing.
  virtual base::Task<Result<std::unique_ptr<EndpointPart>>> open(Endpoint& endpoint);

 private:
  friend class Host;
  const ServiceTraits traits_;
  Host* host_ = nullptr;
  size_t slot_ = 0;
  size_t sessions_ = 0;
  ServiceCounters counters_;
};

}  // namespace pmstore::service
