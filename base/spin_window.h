// SpinWindow: for how long an executor that has nothing to do looks for events before it blocks.
//
// Spinning saves the kernel's wake-ups when the next event comes soon: 5 to 50 us, and as much
// again for the peer that has to be woken by the answer. It takes a processor from others when the
// event does not come soon. kAdaptive spins for up to kMaxNs as long as that has paid lately, after
// long waits less and less, down to nothing; then now and then a few waits are tried with the
// longest window. When more threads want to run than there are processors, it does not spin at all.
//
// kMaxNs is about twice what a wake-up costs: with 20 us a client with 8 coroutines over tcp had
// 0.26 of the rate, since each hiccup put both ends to sleep (docs/waiting.md).
//
// One thread. Reads no clock: a test gives it any course of time.
#pragma once

#include <cstdint>

namespace pmstore::base {

enum class PollMode {
  kAdaptive,  // spins while that pays, then blocks
  kAlways,    // never blocks: for those who own their processors
  kNever,     // blocks at once
};

class SpinWindow {
 public:
  static constexpr uint64_t kMaxNs = 100'000;
  static constexpr uint64_t kMinNs = 1'000;  // a shorter window is none
  // After so many waits without spinning, the next kTrialWaits are tried with kMaxNs.
  static constexpr unsigned kWaitsBetweenTrials = 32;
  static constexpr unsigned kTrialWaits = 4;
  // Crowded at so many looks in a row: no spinning for kCrowdedNs. Crowded again within
  // kCrowdMemoryNs after that, without a look at which it was not: kLooksAgain are enough, and it
  // is twice as long, up to kMaxCrowdedNs.
  static constexpr unsigned kLooks = 3;
  static constexpr unsigned kLooksAgain = 2;
  static constexpr uint64_t kCrowdedNs = 50'000'000;
  static constexpr uint64_t kMaxCrowdedNs = 800'000'000;
  static constexpr uint64_t kCrowdMemoryNs = 1'000'000'000;
  static constexpr uint64_t kForever = UINT64_MAX;

  explicit SpinWindow(PollMode mode) : mode_(mode) {}

  // 0: block at once. kForever: never block.
  uint64_t window_ns() const {
    if (mode_ != PollMode::kAdaptive) return mode_ == PollMode::kAlways ? kForever : 0;
    return trial_left_ > 0 ? kMaxNs : window_ns_;
  }
  // At `now_ns` a wait is over that took `wait_ns`, spinning and blocking together.
  void count_wait(uint64_t now_ns, uint64_t wait_ns);
  // A wait is over that was so short that no clock was read.
  void count_short_wait();
  // At `now_ns` more threads want to run than there are processors.
  void count_crowded(uint64_t now_ns);
  // Whether it is worth asking if the machine is crowded.
  bool wants_crowding(uint64_t now_ns) const {
    return mode_ == PollMode::kAdaptive && window_ns() > 0 && now_ns >= next_look_ns_;
  }
  // The machine was not crowded at `now_ns`.
  void count_uncrowded(uint64_t now_ns);

 private:
  static constexpr uint64_t kLookNs = 5'000'000;
  static constexpr uint64_t kNextLookNs = 300'000;

  const PollMode mode_;
  uint64_t window_ns_ = kMaxNs;
  unsigned trial_left_ = 0;
  unsigned waits_until_trial_ = kWaitsBetweenTrials;
  uint64_t next_look_ns_ = 0;
  uint64_t crowded_until_ns_ = 0;
  uint64_t crowded_ns_ = 0;  // how long it was that, the last time
  unsigned suspicions_ = 0;  // looks in a row at which it was crowded
};

// How many threads of this machine want to run now, this one included (/proc/loadavg); 0 when that
// cannot be read. Costs a few microseconds.
unsigned runnable_threads();
// The processors that this thread may run on.
unsigned own_processors();

}  // namespace pmstore::base
