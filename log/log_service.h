// LogService: serves a LogStore to sessions and to exclusive producers. It is two services of a
// service::Host, which has the listeners, leases and ends of sessions.
//
// Threads: one executor's. Lifetimes: store and executor outlive it; it outlives its host. Group
// commit: appends by RPC that arrive in one turn of the executor share one drain. A producer whose
// lease has run out, or that is stolen from, is fenced: its queue pair is destroyed before anything
// relies on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/executor.h"
#include "log/log_store.h"
#include "service/host.h"

namespace pmstore::log {

struct LogServiceCounters {
  uint64_t sessions = 0;        // that have connected
  uint64_t producers = 0;       // likewise
  uint64_t fenced = 0;          // producers that were stolen from, fell silent or were kicked
  uint64_t shared_appends = 0;  // entries
  uint64_t group_commits = 0;   // drains for them
  uint64_t malformed = 0;
  // Extents of logs over all devices, as far as clients have heard of them: those that clients may
  // READ, and those that a device has refused to register.
  uint64_t extents_registered = 0;
  uint64_t extents_refused = 0;
};

class LogService {
 public:
  static constexpr size_t kMaxSessions = 256;

  LogService(base::Executor& executor, LogStore& store, size_t max_sessions = kMaxSessions);
  // Leaves the logs as they are. Host::stop() ends the sessions in order: what producers had landed
  // is walked.
  ~LogService();

  // Before the host listens.
  void serve(service::Host& host);

  LogServiceCounters counters() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pmstore::log
