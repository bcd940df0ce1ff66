#include "fabric/ofi/internal/shm_lock_breaker.h"

#include <poll.h>
#include <pthread.h>
#include <time.h>

#include <chrono>

#include "fabric/ofi/internal/ofi_device.h"

namespace pmstore::fabric::ofi {

namespace {

constexpr auto kLookEvery = std::chrono::milliseconds(20);
// No call that makes progress computes for so long: one copies 2 MiB at most.
constexpr uint64_t kSpinNs = 100'000'000;

}  // namespace

ShmLockBreaker::ShmLockBreaker(const CallTrace& trace) : trace_(trace) {
  thread_ = std::thread([this] { run(); });
}

ShmLockBreaker::~ShmLockBreaker() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stop_changed_.notify_all();
  thread_.join();
}

void ShmLockBreaker::add(ShmSegment* own, ShmSegment* peer, int socket_fd) {
  std::lock_guard lock(mutex_);
  watched_.push_back(Watched{own, peer, socket_fd});
}

void ShmLockBreaker::remove(const ShmSegment* own) {
  std::lock_guard lock(mutex_);
  std::erase_if(watched_, [&](const Watched& w) { return w.own == own; });
}

void ShmLockBreaker::run() {
  std::unique_lock lock(mutex_);
  while (!stop_changed_.wait_for(lock, kLookEvery, [this] { return stop_; })) {
    if (spinning()) break_locks();
  }
}

bool ShmLockBreaker::spinning() {
  const uint64_t call = trace_.calls.load(std::memory_order_acquire);
  if (call % 2 == 0) {
    call_ = 0;
    return false;
  }
  clockid_t clock;
  timespec used{};
  if (pthread_getcpuclockid(trace_.thread.load(std::memory_order_relaxed), &clock) != 0 ||
      clock_gettime(clock, &used) != 0) {
    return false;
  }
  const uint64_t cpu_ns =
      static_cast<uint64_t>(used.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(used.tv_nsec);
  if (call != call_) {
    call_ = call;
    cpu_at_ns_ = cpu_ns;
    return false;
  }
  return cpu_ns - cpu_at_ns_ >= kSpinNs;
}

void ShmLockBreaker::break_locks() {
  for (const Watched& watched : watched_) {
    pollfd socket{watched.socket_fd, POLLRDHUP, 0};
    if (::poll(&socket, 1, 0) <= 0) continue;  // the peer lives
    for (ShmSegment* segment : {watched.own, watched.peer}) {
      if (segment->lock_is_held()) segment->break_lock();
    }
  }
}

}  // namespace pmstore::fabric::ofi
