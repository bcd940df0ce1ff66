// DaemonWatch: a few times a second, pmstored's work besides serving. Answers programs that look
// for the pool's server, rereads the settings after a SIGHUP, and logs how many log lines were left
// out.
//
// Threads: the service's executor. Lifetimes: all that it borrows outlives its task, which ends
// with the executor.
#pragma once

#include <atomic>
#include <optional>

#include "base/task.h"
#include "tools/daemon/daemon_config.h"
#include "tools/daemon/pool_service.h"
#include "tools/daemon/served_pool.h"
#include "tools/daemon/session_log.h"

namespace pmstore::tools {

class DaemonWatch {
 public:
  // Asked for by a signal handler, answered here: the settings as they are now.
  using Reread = Result<DaemonConfig> (*)();
  DaemonWatch(DaemonConfig& config, DaemonLog& log, SessionLog& sessions, PoolService& service,
              std::atomic<bool>& hangup, Reread reread);
  base::Task<void> run();

 private:
  void reload();
  void say_changes(const DaemonConfig& next);

  DaemonConfig& config_;
  DaemonLog& log_;
  SessionLog& sessions_;
  PoolService& service_;
  std::atomic<bool>& hangup_;
  Reread reread_;
  std::optional<ServedPool> served_;
};

// Does this address reach other machines without authentication and encryption?
bool is_open_tcp(const fabric::Uri& uri);

}  // namespace pmstore::tools
