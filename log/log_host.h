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
#include "fabric/device.h"
#include "fabric/uri.h"
#include "log/log_service.h"
#include "log/log_store.h"
#include "persist/pool.h"
#include "persist/strategy.h"

namespace pmstore::log {

struct LogHostOptions {
  LogServiceOptions service;
  // How the RNIC's writes land when a device moves the data. Default: assume DDIO is on, the safe
  // answer.
  persist::WriteLanding device_landing = persist::WriteLanding::kLastLevelCache;
  // Where listen() gets its devices: a host of the modelled machine. nullptr: this machine.
  // Borrowed for the host's life.
  fabric::DeviceOpener* devices = nullptr;
};

class LogHost {
 public:
  // Errors of LogStore::open().
  static Result<std::unique_ptr<LogHost>> start(base::Executor& executor, persist::Pool& pool,
                                                const LogHostOptions& options);
  // Ends all connections and leaves the logs as they are, as a crash would.
  ~LogHost();

  // Starts accepting on `uri`; gives where it really listens. May be called for several fabrics.
  // Errors of open_device(), register_memory() and Device::listen().
  base::Task<Result<fabric::Uri>> listen(fabric::Uri uri);
  // Ends all connections; what producers had landed is walked, and all is durable. Io.
  Status stop();

  LogStore& store();
  LogService& service();

 private:
  struct State;
  explicit LogHost(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pmstore::log
