// Clock: the source of time. Only this file and the executor's idle loop read real time.
//
// All times are nanoseconds since an arbitrary start, monotonic. RealClock may be read by any
// thread; a VirtualClock belongs to the executors of one simulation, all on one thread.
#pragma once

#include <time.h>

#include <cstdint>

#include "base/check.h"

namespace pmstore::base {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual uint64_t now_ns() const = 0;
  virtual bool is_virtual() const { return false; }
  // A virtual clock jumps to `time_ns` and says true; a real clock cannot and says false.
  virtual bool advance_to(uint64_t time_ns) = 0;
};

class RealClock final : public Clock {
 public:
  uint64_t now_ns() const override {
    timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return static_cast<uint64_t>(ts.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(ts.tv_nsec);
  }
  bool advance_to(uint64_t) override { return false; }
};

class VirtualClock final : public Clock {
 public:
  uint64_t now_ns() const override { return now_ns_; }
  bool is_virtual() const override { return true; }
  bool advance_to(uint64_t time_ns) override {
    PMSTORE_CHECK(time_ns >= now_ns_, "virtual time never goes back");
    now_ns_ = time_ns;
    return true;
  }

 private:
  uint64_t now_ns_ = 0;
};

}  // namespace pmstore::base
