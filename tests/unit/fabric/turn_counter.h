// TurnCounter: counts the turns of an executor. Many of them in a time without events mean that it
// does not sleep. Any thread may read the count.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/executor.h"

namespace pmstore::fabric {

struct TurnCounter final : base::Poller {
  size_t poll() override {
    ++turns;
    return 0;
  }
  bool arm() override { return true; }
  std::atomic<uint64_t> turns{0};
};

}  // namespace pmstore::fabric
