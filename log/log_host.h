// LogHost: the log service of one pool with listeners of its own, where no store is served: for
// pools in this process (log/embedded_log.h) and for tests. pmstored serves logs beside its store
// instead, on the store's listeners.
//
// Threads: one executor, all calls on its thread. Lifetimes: pool and executor outlive it. start()
// walks every log before any connection is accepted.
#pragma once

#include <memory>

#include "base/executor.h"
#include "base/result.h"
#include "base/task.h"
#include "fabric/uri.h"
#include "log/log_service.h"
#include "log/log_store.h"
#include "persist/pool.h"
#include "service/host.h"

namespace pmstore::log {

struct LogHostOptions {
  service::HostOptions host;  // the pool says its domain
  size_t max_sessions = LogService::kMaxSessions;
};

class LogHost {
 public:
  // Errors of LogStore::open(); InvalidArgument.
  static Result<std::unique_ptr<LogHost>> start(base::Executor& executor, persist::Pool& pool,
                                                const LogHostOptions& options);
  // Ends all connections and leaves the logs as they are, as a crash would.
  ~LogHost();

  // Starts accepting on `uri`; gives where it really listens. May be called for several fabrics.
  // Errors of service::Host::listen().
  base::Task<Result<fabric::Uri>> listen(fabric::Uri uri);
  // Ends all connections; what producers had landed is walked, and all is durable. Io.
  Status stop();

  LogStore& store();
  LogService& service();
  service::Host& host();

 private:
  struct State;
  explicit LogHost(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pmstore::log
