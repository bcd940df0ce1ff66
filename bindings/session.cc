#include "bindings/session.h"

#include <chrono>

namespace {

// Leases last seconds, and are renewed every third of that.
constexpr std::chrono::milliseconds kKeepEvery{100};
// Longer than a producer's publish_delay_ns, twice.
constexpr std::chrono::microseconds kPublishWithin{200};
constexpr uint64_t kKeepForNs = 50'000;
// Of appends in process: about 10 us, with an msync each as long as those take.
constexpr unsigned kCallsPerTurn = 64;

}  // namespace

void pmstore_log_session::start_keeper() {
  keeper_ = std::thread([this] { keep(); });
}

pmstore_log_session::~pmstore_log_session() {
  {
    const std::lock_guard lock(mutex);
    stop_ = true;
    wake_.notify_all();
  }
  if (keeper_.joinable()) keeper_.join();
  client.reset();
}

void pmstore_log_session::publish_soon() {
  if (publish_soon_) return;
  publish_soon_ = true;
  wake_.notify_all();
}

void pmstore_log_session::take_turn() {
  if (++calls_without_turn_ % kCallsPerTurn == 0) executor.run_once();
}

void pmstore_log_session::keep() {
  const auto a_while = [this]() -> pmstore::base::Task<void> {
    co_await executor.sleep_for(kKeepForNs);
  };
  std::unique_lock lock(mutex);
  while (!stop_) {
    wake_.wait_for(lock, kKeepEvery, [this] { return stop_ || publish_soon_; });
    if (stop_) return;
    if (publish_soon_) {
      lock.unlock();
      std::this_thread::sleep_for(kPublishWithin);
      lock.lock();
      publish_soon_ = false;
    }
    executor.run(a_while());
  }
}
