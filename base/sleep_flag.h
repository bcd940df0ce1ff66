// SleepFlag: the word by which a thread says that it is about to block, so that others wake it.
// While both sides are busy, telling of an event needs no system call.
//
// The sleeper: announce(), then look for events once more, then block if there are none, then
// clear(). A waker: publish the event, then claim(); if that is true, wake the sleeper (write to
// its eventfd). Between announce() and the look, and between the publication and claim(), there is
// a full barrier. So of the two, at least one sees the other: no wake-up is lost. At most one waker
// claims each sleep.
//
// Threads: one sleeper, any number of wakers, also of other processes: the word may lie in shared
// memory. `Word` and `fence` are parameters only so that a test can explore all interleavings.
#pragma once

#include <atomic>
#include <cstdint>

namespace pmstore::base {

struct HardwareFence {
  void operator()() const { std::atomic_thread_fence(std::memory_order_seq_cst); }
};

template <typename Word, typename Fence>
class BasicSleepFlag {
 public:
  BasicSleepFlag() = default;
  explicit BasicSleepFlag(Fence fence) : fence_(fence) {}

  // The sleeper must look for events after this call and before it blocks.
  void announce() {
    asleep_.store(1, std::memory_order_relaxed);
    fence_();
  }
  void clear() { asleep_.store(0, std::memory_order_relaxed); }

  // After an event has been published. True: the caller must wake the sleeper.
  bool claim() {
    fence_();
    if (asleep_.load(std::memory_order_relaxed) == 0) return false;
    return asleep_.exchange(0, std::memory_order_acq_rel) != 0;
  }

 private:
  Word asleep_{0};
  [[no_unique_address]] Fence fence_;
};

using SleepFlag = BasicSleepFlag<std::atomic<uint32_t>, HardwareFence>;
static_assert(sizeof(SleepFlag) == 4 && std::atomic<uint32_t>::is_always_lock_free,
              "may lie in memory that two processes share");

}  // namespace pmstore::base
