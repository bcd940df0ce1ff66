// SessionLog: writes a line into the daemon's log for sessions that are refused or end, and for
// what services warn of.
//
// At most kLines refusals, kLines ends and kLines warnings in kPeriodNs: a client may cause each of
// them again and again. The next line says how many are missing.
// Threads: the server's. Lifetimes: log and clock outlive it, it outlives the server.
#pragma once

#include <algorithm>

#include "service/session_observer.h"
#include "tools/daemon/daemon_log.h"

namespace pmstore::tools {

class SessionLog final : public SessionObserver {
 public:
  static constexpr uint32_t kLines = 10;
  static constexpr uint64_t kPeriodNs = 10'000'000'000;
  // `stop` ends the service when the server has failed.
  SessionLog(DaemonLog& log, const base::Clock& clock, void (*stop)())
      : log_(log),
        stop_(stop),
        refusals_(clock, kLines, kPeriodNs),
        ends_(clock, kLines, kPeriodNs),
        warnings_(clock, kLines, kPeriodNs) {}

  void on_session(const SessionName& session) override;
  void on_refused(const SessionName& session, const Error& why) override;
  void on_ended(const SessionName& session, SessionEnd why) override;
  // The line about it is the daemon's last one.
  void on_failure(const Error&) override { stop_(); }
  void on_mended(const std::string& what) override { log_.write(LogLevel::kWarning, what); }
  void on_warning(const std::string& what) override;
  // Logs the number of omitted lines, if their period is over.
  void summarize();
  // When summarize() has something to say; LineLimit::kNever when no line was omitted.
  uint64_t summary_due_ns() const {
    return std::min({refusals_.due_ns(), ends_.due_ns(), warnings_.due_ns()});
  }

 private:
  DaemonLog& log_;
  void (*stop_)();
  LineLimit refusals_;
  LineLimit ends_;
  LineLimit warnings_;
};

}  // namespace pmstore::tools
