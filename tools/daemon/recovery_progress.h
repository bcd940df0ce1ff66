// RecoveryProgress: one line per second on standard error, in a log file, and in the status that
// the service manager shows, while a start reads records, from the first full second on.
//
// Threads: one. Lifetimes: the clock, the log and the manager outlive it.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

#include "base/clock.h"
#include "tools/daemon/daemon_log.h"
#include "tools/daemon/service_manager.h"

namespace pmstore::tools {

class RecoveryProgress {
 public:
  RecoveryProgress(const base::Clock& clock, DaemonLog& log, const ServiceManager& manager,
                   std::string pool)
      : clock_(clock),
        log_(log),
        manager_(manager),
        pool_(std::move(pool)),
        next_ns_(clock.now_ns() + kSecondNs) {}

  // So many of the slots were read.
  void tell(uint64_t slots_read, uint64_t slots) {
    const uint64_t now_ns = clock_.now_ns();
    if (now_ns < next_ns_) return;
    next_ns_ = now_ns + kSecondNs;
    const uint64_t percent = slots == 0 ? 100 : slots_read * 100 / slots;
    const std::string read =
        fmt::format("read {} of {} slots of records ({}%)", slots_read, slots, percent);
    fmt::print(stderr, "pmstored: {}: {}\n", pool_, read);
    std::fflush(stderr);
    if (log_.to_file()) log_.write(LogLevel::kInfo, read);
    manager_.starting(read);
  }

 private:
  static constexpr uint64_t kSecondNs = 1'000'000'000;
  const base::Clock& clock_;
  DaemonLog& log_;
  const ServiceManager& manager_;
  std::string pool_;
  uint64_t next_ns_;
};

}  // namespace pmstore::tools
