// LogService: serves a LogStore to sessions and to exclusive producers, on any number of fabrics.
//
// It has no listener of its own: whoever accepts handshakes passes those that begin with
// kLogProtocolMagic on. Threads: one executor's. Lifetimes: store, executor and the endpoints'
// devices outlive it. Group commit: appends by RPC that arrive in one turn of the executor share
// one drain. A producer whose lease has run out, or that is stolen from, is fenced: its queue pair
// is destroyed before anything relies on it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/executor.h"
#include "fabric/device.h"
#include "fabric/rpc.h"
#include "log/log_store.h"
#include "persist/strategy.h"
#include "service/session_observer.h"

namespace pmstore::log {

struct LogServiceOptions {
  // Of producers, and of sessions where the fabric does not notice dead peers.
  uint32_t lease_ms = 5000;
  uint32_t max_sessions = 256;
  fabric::RpcOptions rpc;
  SessionObserver* observer = nullptr;  // borrowed; told of what has connected and how it ended
};

struct LogServiceCounters {
  uint64_t sessions = 0;        // that were accepted
  uint64_t producers = 0;       // likewise
  uint64_t fenced = 0;          // producers that were stolen from or fell silent
  uint64_t shared_appends = 0;  // entries
  uint64_t group_commits = 0;   // drains for them
  uint64_t malformed = 0;
};

// What a server without a log area answers to a log hello.
Error no_log_area();

class LogService {
 public:
  static Result<std::unique_ptr<LogService>> start(base::Executor& executor, LogStore& store,
                                                   const LogServiceOptions& options);
  ~LogService();

  // One per device that listens: registers the area and the words there. Gives its number.
  Result<size_t> add_endpoint(fabric::Device& device, const persist::PersistCapability& capability);
  // The one that was added last, when its device could not listen: before that device goes.
  void remove_last_endpoint();
  // What sessions that come through it are said to have come through.
  void name_endpoint(size_t endpoint, std::string uri);

  // Is this handshake the log service's?
  static bool is_log_hello(std::span<const std::byte> hello);
  // As fabric::Acceptor, for handshakes that came through that endpoint. VersionMismatch; Protocol;
  // BackPressure (too many sessions). Of producers: NotFound, Busy, Sealed, Conflict, Damaged.
  Result<std::vector<std::byte>> on_hello(size_t endpoint, uint64_t token,
                                          std::span<const std::byte> hello);
  void on_connected(size_t endpoint, uint64_t token,
                    std::unique_ptr<fabric::Connection> connection);
  void on_abandoned(size_t endpoint, uint64_t token);
  // Is `token` a handshake that on_hello() of this endpoint accepted?
  bool has_handshake(size_t endpoint, uint64_t token) const;

  // Fences every producer and ends every session; what they had landed is walked. Nothing of the
  // devices is used any more. The destructor does the same, but leaves the logs as they are.
  void stop();
  const LogServiceCounters& counters() const;
  // Of sessions and producers whose connection stands.
  std::vector<SessionReport> sessions() const;
  // Ends all of that client in order, as stop() does; gives how many they were.
  size_t kick(uint64_t client);

 private:
  struct State;
  explicit LogService(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pmstore::log
