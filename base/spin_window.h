// SpinWindow: for how long an executor that has nothing to do looks for events before it blocks.
//
// Spinning saves the kernel's wake-up (5 to 50 us) when the next event comes soon, and takes a
// processor from others when it does not. kAdaptive spins for as long as spinning has paid lately:
// after short waits up to kMaxNs, after long ones less and less, down to nothing; then now and then
// a few waits are tried with the longest window. When more threads want to run than there are
// processors, it does not spin at all.
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
  static constexpr uint64_t kMaxNs = 20'000;
  static constexpr uint64_t kMinNs = 1'000;  // a shorter window is none
  // After so many waits without spinning, the next kTrialWaits are tried with kMaxNs.
  static constexpr unsigned kWaitsBetweenTrials = 64;
  static constexpr unsigned kTrialWaits = 4;
  // Crowded once: no spinning for so long.
  static constexpr uint64_t kCrowdedNs = 50'000'000;
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
  void count_short_wait() {
    if (trial_left_ > 0) --trial_left_;
    average_ns_ -= average_ns_ / 8;
    window_ns_ = 3 * average_ns_ + kMinNs < kMaxNs ? 3 * average_ns_ + kMinNs : kMaxNs;
  }
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
  static constexpr uint64_t kSecondLookNs = 200'000;

  const PollMode mode_;
  uint64_t window_ns_ = kMaxNs;
  uint64_t average_ns_ = kMaxNs / 4;  // of the waits that spinning paid for
  unsigned trial_left_ = 0;
  unsigned waits_until_trial_ = kWaitsBetweenTrials;
  uint64_t next_look_ns_ = 0;
  uint64_t crowded_until_ns_ = 0;
  bool suspected_ = false;  // crowded at the last look: the next one decides
};

// How many threads of this machine want to run now, this one included (/proc/loadavg); 0 when that
// cannot be read. Costs a few microseconds.
unsigned runnable_threads();
// The processors that this thread may run on.
unsigned own_processors();

}  // namespace pmstore::base
