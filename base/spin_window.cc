#include "base/spin_window.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/file_descriptor.h"

namespace pmstore::base {

void SpinWindow::count_short_wait() {
  if (trial_left_ > 0) --trial_left_;
  window_ns_ = kMaxNs;
}

void SpinWindow::count_wait(uint64_t now_ns, uint64_t wait_ns) {
  if (mode_ != PollMode::kAdaptive || now_ns < crowded_until_ns_) return;
  if (wait_ns <= kMaxNs) return count_short_wait();  // spinning has paid, or would have
  if (trial_left_ > 0) {
    --trial_left_;
    return;
  }
  window_ns_ = window_ns_ / 2 < kMinNs ? 0 : window_ns_ / 2;
  if (window_ns_ > 0 || --waits_until_trial_ > 0) return;
  waits_until_trial_ = kWaitsBetweenTrials;
  trial_left_ = kTrialWaits;
}

void SpinWindow::count_crowded(uint64_t now_ns) {
  const bool again = crowded_ns_ > 0 && now_ns < crowded_until_ns_ + kCrowdMemoryNs;
  // One look may see a thread that runs for a moment only.
  if (++suspicions_ < (again ? kLooksAgain : kLooks)) {
    next_look_ns_ = now_ns + kNextLookNs;
    return;
  }
  crowded_ns_ = again ? std::min(2 * crowded_ns_, kMaxCrowdedNs) : kCrowdedNs;
  crowded_until_ns_ = now_ns + crowded_ns_;
  window_ns_ = 0;
  trial_left_ = 0;
  waits_until_trial_ = kWaitsBetweenTrials;
  next_look_ns_ = 0;
  suspicions_ = 0;
}

void SpinWindow::count_uncrowded(uint64_t now_ns) {
  suspicions_ = 0;
  crowded_ns_ = 0;
  next_look_ns_ = now_ns + kLookNs;
}

unsigned runnable_threads() {
  // Kept open: opening costs more than reading. Each thread has its own position.
  thread_local FileDescriptor file;
  if (!file) file = FileDescriptor(open("/proc/loadavg", O_RDONLY | O_CLOEXEC));
  char text[128];
  const ssize_t bytes = file ? pread(file.get(), text, sizeof text - 1, 0) : -1;
  if (bytes <= 0) return 0;
  text[bytes] = '\0';
  // "0.20 0.18 0.12 2/345 4321"
  const char* slash = std::strchr(text, '/');
  if (slash == nullptr) return 0;
  while (slash > text && slash[-1] != ' ') --slash;
  return static_cast<unsigned>(std::strtoul(slash, nullptr, 10));
}

unsigned own_processors() {
  cpu_set_t processors;
  if (sched_getaffinity(0, sizeof processors, &processors) != 0) return 1;
  return static_cast<unsigned>(std::max(1, CPU_COUNT(&processors)));
}

}  // namespace pmstore::base
