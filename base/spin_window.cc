#include "base/spin_window.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/file_descriptor.h"

namespace pmstore::base {

void SpinWindow::count_wait(uint64_t now_ns, uint64_t wait_ns) {
  if (mode_ != PollMode::kAdaptive || now_ns < crowded_until_ns_) return;
  if (wait_ns <= kMaxNs) {  // spinning pays, or would have paid
    average_ns_ = (7 * average_ns_ + wait_ns) / 8;
    window_ns_ = std::min(kMaxNs, 3 * average_ns_ + kMinNs);
    if (trial_left_ > 0) --trial_left_;
    return;
  }
  if (trial_left_ > 0) {
    --trial_left_;
    return;
  }
  window_ns_ = window_ns_ / 2 < kMinNs ? 0 : window_ns_ / 2;
  if (window_ns_ > 0) return;
  average_ns_ = kMaxNs / 4;
  if (--waits_until_trial_ > 0) return;
  waits_until_trial_ = kWaitsBetweenTrials;
  trial_left_ = kTrialWaits;
}

void SpinWindow::count_crowded(uint64_t now_ns) {
  // One look may see a thread that runs for a moment only.
  if (!suspected_ && now_ns >= crowded_until_ns_ + kLookNs) {
    suspected_ = true;
    next_look_ns_ = now_ns + kSecondLookNs;
    return;
  }
  window_ns_ = 0;
  trial_left_ = 0;
  waits_until_trial_ = kWaitsBetweenTrials;
  crowded_until_ns_ = now_ns + kCrowdedNs;
  next_look_ns_ = 0;
  suspected_ = false;
}

void SpinWindow::count_uncrowded(uint64_t now_ns) {
  suspected_ = false;
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
