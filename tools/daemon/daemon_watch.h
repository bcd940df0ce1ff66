// DaemonWatch: pmstored's work besides serving. Answers programs that look for the pool's server,
// rereads the settings after a SIGHUP, and logs how many log lines were left out. Has no timer
// while there is none of this to do.
//
// Threads: the service's executor. Lifetimes: all that it borrows outlives it.
#pragma once

#include <algorithm>
#include <atomic>
#include <optional>

#include "base/executor.h"
#include "tools/daemon/daemon_config.h"
#include "tools/daemon/pool_service.h"
#include "tools/daemon/served_pool.h"
#include "tools/daemon/session_log.h"

namespace pmstore::tools {

class DaemonWatch final : public base::Poller, public base::Watched {
 public:
  // Gives the settings as they are now. Called after a signal handler has set `hangup` and has
  // woken the service.
  using Reread = Result<DaemonConfig> (*)();
  DaemonWatch(DaemonConfig& config, DaemonLog& log, SessionLog& sessions, PoolService& service,
              std::atomic<bool>& hangup, Reread reread);
  ~DaemonWatch() override;
  DaemonWatch(const DaemonWatch&) = delete;
  DaemonWatch& operator=(const DaemonWatch&) = delete;

  size_t poll() override;
  uint64_t next_event_ns() const override {
    return std::min(sessions_.summary_due_ns(), answer_again_ns_);
  }
  bool arm() override { return !asked_ && !hangup_.load(); }
  void on_ready(uint32_t) override { asked_ = true; }

 private:
  void answer();
  void reload();
  void say_changes(const DaemonConfig& next);

  DaemonConfig& config_;
  DaemonLog& log_;
  SessionLog& sessions_;
  PoolService& service_;
  std::atomic<bool>& hangup_;
  Reread reread_;
  std::optional<ServedPool> served_;
  bool asked_ = false;                   // somebody waits for an answer of served_
  uint64_t answer_again_ns_ = kNoEvent;  // set while served_ is not watched
};

// Does this address reach other machines without authentication and encryption?
bool is_open_tcp(const fabric::Uri& uri);

}  // namespace pmstore::tools
