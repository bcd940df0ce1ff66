#include "fabric/ofi/internal/shm_lock_breaker.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "fabric/ofi/internal/ofi_device.h"

namespace pmstore::fabric::ofi {

namespace {

constexpr auto kLookEvery = std::chrono::milliseconds(20);
// No call that makes progress computes for so long: one copies 2 MiB at most.
constexpr uint64_t kSpinNs = 100'000'000;
constexpr size_t kPageBytes = 4096;
// glibc's spin lock on x86-64: 1 is free, below is held.
constexpr int32_t kFree = 1;

}  // namespace

// smr_region of libfabric 1.17 (its version byte is 4).
struct ShmSegment::Layout {
  uint8_t version;
  uint8_t reserved;
  uint16_t flags;
  int32_t pid;
  uint64_t unused1;
  uint64_t base_address;
  int32_t lock;
  int32_t signal;
  uint64_t map;
  uint64_t total_bytes;
  uint64_t free_commands;
  uint64_t unused2;
  uint64_t command_queue_offset;
  uint64_t unused3[7];
  struct {
    uint64_t entries;
    uint64_t mask;
    uint64_t read;
    uint64_t written;
  } commands;
};

ShmSegment::ShmSegment(void* page, uint64_t file_bytes)
    : layout_(static_cast<Layout*>(page)), file_bytes_(file_bytes) {
  static_assert(offsetof(Layout, lock) == 24 && offsetof(Layout, commands) == 128);
}

ShmSegment::~ShmSegment() { munmap(layout_, kPageBytes); }

Result<std::unique_ptr<ShmSegment>> ShmSegment::map(const std::string& name) {
  const int fd = shm_open(("/" + name).c_str(), O_RDWR | O_CLOEXEC, 0);
  struct stat info {};
  void* page = MAP_FAILED;
  if (fd >= 0) {
    if (fstat(fd, &info) == 0 && info.st_size >= static_cast<off_t>(kPageBytes)) {
      page = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    close(fd);
  }
  if (page == MAP_FAILED) {
    return make_error(ErrorCode::kDisconnected,
                      "cannot map the peer's segment /dev/shm/" + name +
                          "; both sides must see the same /dev/shm (containers: share the IPC "
                          "namespace) and run as the same user");
  }
  return std::unique_ptr<ShmSegment>(new ShmSegment(page, static_cast<uint64_t>(info.st_size)));
}

bool ShmSegment::recognized() const {
  return layout_->version == 4 && layout_->pid == getpid() && layout_->lock == kFree &&
         layout_->total_bytes == file_bytes_ &&
         layout_->command_queue_offset == offsetof(Layout, commands) &&
         layout_->commands.entries == layout_->free_commands &&
         layout_->commands.mask == layout_->commands.entries - 1 && layout_->commands.read == 0 &&
         layout_->commands.written == 0;
}

uint64_t ShmSegment::commands_taken() const {
  return __atomic_load_n(&layout_->commands.read, __ATOMIC_RELAXED);
}

bool ShmSegment::lock_is_held() const {
  return __atomic_load_n(&layout_->lock, __ATOMIC_ACQUIRE) < kFree;
}

void ShmSegment::break_lock() {
  __atomic_store_n(&layout_->commands.read,
                   __atomic_load_n(&layout_->commands.written, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
  __atomic_store_n(&layout_->lock, kFree, __ATOMIC_RELEASE);
}

void ShmSegment::leave_locked() {
  __atomic_store_n(&layout_->lock, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&layout_->signal, 1, __ATOMIC_RELEASE);
}

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
