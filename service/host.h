// Host: the sessions of a server, whatever they are for. It listens, accepts a handshake for the
// service that its hello names, bounds and watches sessions, passes requests on, and ends sessions.
//
// A session begins with its hello, is connected when the handshake ends, and ends once: by its
// connection, its lease, a malformed message, another session that needs its place, an
// administrator, or the host's stop. The order of an end: what waits for a drain is answered; the
// connection is destroyed, so that nothing of the client takes effect any more; then its service is
// told, then the observer. Invariants: a session in handshakes_ is in sessions_, and not connected;
// a session in sessions_ has not ended, and its service's sessions() counts it. Threads: one
// executor's. Lifetimes: executor, observer and services outlive it. Bounded by the traits of its
// services.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "base/result.h"
#include "base/task.h"
#include "fabric/device.h"
#include "fabric/rpc.h"
#include "service/service.h"

namespace pmstore::service {

struct HostOptions {
  // InvalidArgument: no lease, too little memory.
  Status check() const;

  // A session that has a lease, and sends no request for so long, is ended; at the latest a quarter
  // later.
  uint32_t lease_ms = 5000;
  fabric::RpcOptions rpc;
  // So many bytes of memory may the requests and answers of all sessions take together: while they
  // take more, no new session is let in, and sessions that hold more than a little and have sent
  // nothing for a while are ended. At least kLeastMessageBytes. Rings that an RNIC writes are
  // pinned, and do not count.
  uint64_t message_bytes = uint64_t{1} << 30;
  static constexpr uint64_t kLeastMessageBytes = uint64_t{64} << 20;
  persist::Domain domain = persist::Domain::kNone;  // of the pool
  // Where an RNIC's writes arrive when a device moves the data. The default assumes that DDIO is
  // on, which is safe in both cases.
  persist::WriteLanding device_landing = persist::WriteLanding::kLastLevelCache;
  fabric::DeviceOpener* devices = nullptr;  // borrowed; nullptr: this machine
  SessionObserver* observer = nullptr;      // borrowed; may be nullptr
};

class Host final : public fabric::RpcHandler {
 public:
  Host(base::Executor& executor, const HostOptions& options);
  // Destroys all connections and endpoints. No service is called.
  ~Host() override;

  // Before the first listen(); each id once.
  void add(Service& service);
  // Hellos for `id`, which no service of this host has, are refused with `why`.
  void decline(ServiceId id, Error why);

  // Starts accepting on `uri`; gives where it really listens. May be called for several fabrics.
  // Errors of open_device(), Device::loopback(), Service::open() and Device::listen().
  base::Task<Result<fabric::Uri>> listen(fabric::Uri uri);
  const std::vector<std::unique_ptr<Endpoint>>& endpoints() const { return endpoints_; }

  // Ends a session, once, in the order above. `why` goes to its service, and to the observer when
  // the session was connected; a session that has said goodbye ends with that. Empty: the host
  // stops, and no observer is told.
  void end(Session& session, std::optional<SessionEnd> why);
  // What Service::needs_lease() says of the session has changed.
  void look_at_lease(Session& session);
  // A request that a client in this process has made by a call: the lease and statistics see it.
  void count(Session& session);
  // The answer to a request that does not decode, and the end of its session.
  void drop_malformed(Session& session, fabric::RpcCall& call);
  // The pool cannot be written any more: tells the observer, once.
  void tell_failure(const Error& why);
  // As SessionObserver::on_warning().
  void warn(const std::string& what);
  // The oldest session of the service whose handshake is not over; nullptr: there is none.
  Session* oldest_hello(const Service& service) const;
  // Ends the listed sessions of that client that are connected; gives how many they were.
  size_t kick(ClientId client);
  // Of listed sessions that are connected, in the order of their hellos.
  std::vector<SessionReport> reports() const;

  // In order: accepts nothing any more, then ends every session.
  void stop();
  // As a crash would: accepts nothing any more and destroys every connection. No service is called.
  void shut_down();
  // After that: destroys the parts of services, then the devices.
  void close_endpoints() { endpoints_.clear(); }
  bool stopped() const { return stopped_; }

  // As fabric::Acceptor, for handshakes that came through that endpoint.
  Result<std::vector<std::byte>> on_hello(Endpoint& endpoint, uint64_t token,
                                          std::span<const std::byte> hello);
  void on_connected(Endpoint& endpoint, uint64_t token,
                    std::unique_ptr<fabric::Connection> connection);
  void on_abandoned(Endpoint& endpoint, uint64_t token);
  bool has_handshake(Endpoint& endpoint, uint64_t token) const {
    return handshakes_.contains({&endpoint, token});
  }

  void on_call(fabric::RpcPeer& peer, fabric::RpcCall call) override;
  void on_waiting(fabric::RpcPeer& peer, uint16_t method,
                  std::span<const std::byte> request) override;
  void on_peer_gone(fabric::RpcPeer& peer, const Error& why) override;

 private:
  Result<Service*> service_of(ServiceId id) const;
  Result<std::shared_ptr<Session>> begin(Endpoint& endpoint, uint64_t token, const Hello& hello);
  Result<std::vector<std::byte>> accept(Endpoint& endpoint, uint64_t token,
                                        std::span<const std::byte> hello);
  bool is_leased(const Session& session) const;
  Status make_place(Service& service);
  void tell_refused(const Endpoint& endpoint, std::span<const std::byte> hello, const Error& why);
  void serve(Session& session, fabric::RpcCall call);
  // Watches as long as there is something to see. Does nothing while it runs.
  void watch() {
    if (watching_sessions_) return;
    watching_ = watch_sessions();
    watching_.start();
  }
  base::Task<void> watch_sessions();
  bool look_at_sessions();
  bool is_full() const { return messages_.held_bytes > options_.message_bytes; }
  // Ends sessions that hold memory and are silent, until there is clearly enough again.
  void end_silent_holders();
  // Sessions may end meanwhile.
  template <typename Action>
  void for_each_session(Action action);

  base::Executor& executor_;
  const HostOptions options_;
  fabric::RpcMemory messages_;  // of all sessions
  uint64_t looked_for_holders_ns_ = 0;
  std::vector<Service*> services_;
  std::map<ServiceId, Error> declined_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  std::map<uint64_t, std::shared_ptr<Session>> sessions_;  // by number
  std::map<std::pair<Endpoint*, uint64_t>, Session*> handshakes_;
  uint64_t hellos_ = 0;
  uint64_t calls_ = 0;
  bool stopped_ = false;
  bool failure_told_ = false;
  bool watching_sessions_ = false;
  base::Task<void> watching_;
};

// How a session is named to an observer.
SessionName name_of(const Session& session);

}  // namespace pmstore::service
