#include "bindings/session.h"

#include <chrono>

namespace {

// The keeper takes the session when no call has come for so long: leases last seconds, and are
// renewed every third of that. A call that takes it back waits for two wake-ups of the kernel.
constexpr std::chrono::milliseconds kRest{100};
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
    const auto lock = hold();
    stop_ = true;
    wake_.notify_all();
  }
  if (keeper_.joinable()) keeper_.join();
  client.reset();
}

std::unique_lock<std::mutex> pmstore_log_session::hold() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) {
    wanted_.fetch_add(1);
    executor.post_remote([this] { asked_.notify_all(); });
    lock.lock();
    wanted_.fetch_sub(1);
  }
  ++calls_;
  return lock;
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
  const auto until_wanted = [this]() -> pmstore::base::Task<void> {
    while (wanted_.load() == 0) co_await asked_.wait();
  };
  std::unique_lock lock(mutex_);
  while (!stop_) {
    const uint64_t calls = calls_;
    wake_.wait_for(lock, kRest, [this] { return stop_ || publish_soon_; });
    if (stop_) return;
    if (publish_soon_) {
      lock.unlock();
      std::this_thread::sleep_for(kPublishWithin);
      lock.lock();
      publish_soon_ = false;
      executor.run(a_while());
    } else if (calls == calls_) {
      executor.run(until_wanted());
    }
  }
}
