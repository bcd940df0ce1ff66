// OfiDevice: a device over libfabric: its provider, its regions, and a trace of the calls that take
// libfabric's locks.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <memory>

#include "fabric/internal/polled_device.h"
#include "fabric/ofi/internal/provider.h"

namespace pmstore::fabric::ofi {

// Tells ShmLockBreaker, which runs on another thread, whether the executor's thread is in
// libfabric.
struct CallTrace {
  std::atomic<uint64_t> calls{0};  // odd while inside libfabric
  std::atomic<pthread_t> thread{};
};

class OfiDevice : public internal::PolledDevice {
 public:
  Result<std::unique_ptr<MemoryRegion>> register_memory(std::span<std::byte> memory,
                                                        Access access) override;

  // libfabric's shm provider has no descriptor to wait for: it is polled again soon.
  bool arm() override {
    poll_again_ns_ = executor_.now_ns() + kPollNs;
    return PolledDevice::arm();
  }
  uint64_t next_event_ns() const override {
    return std::min(poll_again_ns_, PolledDevice::next_event_ns());
  }

  // ---- for connections ----
  const Provider& provider() const { return *provider_; }

 protected:
  OfiDevice(base::Executor& executor, Scheme scheme, std::unique_ptr<Provider> provider);

  CallTrace calls_;

 private:
  static constexpr uint64_t kPollNs = 50'000;
  uint64_t poll_again_ns_ = 0;
  friend class CallGuard;
  std::unique_ptr<Provider> provider_;
};

// Around calls that take libfabric's locks. Not nested.
class CallGuard {
 public:
  explicit CallGuard(OfiDevice& device) : trace_(device.calls_) {
    trace_.thread.store(pthread_self(), std::memory_order_relaxed);
    step();
  }
  ~CallGuard() { step(); }
  CallGuard(const CallGuard&) = delete;
  CallGuard& operator=(const CallGuard&) = delete;

 private:
  void step() {
    trace_.calls.store(trace_.calls.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  CallTrace& trace_;
};

}  // namespace pmstore::fabric::ofi
