// RecoveryProgress: one line per second on standard error while a start reads records, from the
// first full second on.
//
// Threads: one. Lifetimes: the clock outlives it.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <string>

#include "base/clock.h"

namespace pmstore::tools {

class RecoveryProgress {
 public:
  RecoveryProgress(const base::Clock& clock, std::string pool)
      : clock_(clock), pool_(std::move(pool)), next_ns_(clock.now_ns() + kSecondNs) {}

  // So many of the slots were read.
  void tell(uint64_t slots_read, uint64_t slots) {
    const uint64_t now_ns = clock_.now_ns();
    if (now_ns < next_ns_) return;
    next_ns_ = now_ns + kSecondNs;
    fmt::print(stderr, "pmstored: {}: read {} of {} slots of records ({}%)\n", pool_, slots_read,
               slots, slots == 0 ? 100 : slots_read * 100 / slots);
    std::fflush(stderr);
  }

 private:
  static constexpr uint64_t kSecondNs = 1'000'000'000;
  const base::Clock& clock_;
  std::string pool_;
  uint64_t next_ns_;
};

}  // namespace pmstore::tools
