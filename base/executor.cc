#include "base/executor.h"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace pmstore::base {

// The frame around a spawned task; it destroys itself when the task is done.
struct Executor::Detached {
  struct promise_type {
    static void* operator new(size_t bytes) { return FramePool::allocate(bytes); }
    static void operator delete(void* frame, size_t bytes) noexcept {
      FramePool::release(frame, bytes);
    }
    Detached get_return_object() {
      return {std::coroutine_handle<promise_type>::from_promise(*this)};
    }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() noexcept { std::terminate(); }
    std::coroutine_handle<> self;
    Executor* executor = nullptr;
    ~promise_type() {
      if (executor == nullptr) return;
      auto& all = executor->spawned_;
      auto found = std::find(all.begin(), all.end(), self);
      if (found == all.end()) return;
      *found = all.back();
      all.pop_back();
    }
  };
  std::coroutine_handle<promise_type> frame;
};

Executor::Detached Executor::run_detached(Executor&, Task<void> task) { co_await std::move(task); }

Executor::Executor(Clock& clock, ExecutorOptions options)
    : clock_(clock), options_(options), random_(options.seed) {}

Executor::~Executor() {
  while (!spawned_.empty()) spawned_.back().destroy();  // the promise takes itself off the list
}

void Executor::spawn(Task<void> task) {
  Detached detached = run_detached(*this, std::move(task));
  detached.frame.promise().self = detached.frame;
  detached.frame.promise().executor = this;
  spawned_.push_back(detached.frame);
  post(detached.frame);
}

void Executor::post_remote(std::function<void()> work) {
  std::lock_guard lock(remote_mutex_);
  remote_.push_back(std::move(work));
  has_remote_.store(true, std::memory_order_release);
}

void Executor::add_poller(Poller* poller) { pollers_.push_back(poller); }

void Executor::remove_poller(Poller* poller) {
  auto found = std::find(pollers_.begin(), pollers_.end(), poller);
  if (found == pollers_.end()) return;
  if (polling_) {
    *found = nullptr;  // run_pollers() is walking the list and clears the holes
  } else {
    pollers_.erase(found);
  }
}

void Executor::add_timer(uint64_t time_ns, std::coroutine_handle<> frame) {
  timers_.push(Timer{time_ns, timer_order_++, frame});
}

bool Executor::run_remote() {
  if (!has_remote_.load(std::memory_order_acquire)) return false;
  std::vector<std::function<void()>> work;
  {
    std::lock_guard lock(remote_mutex_);
    work.swap(remote_);
    has_remote_.store(false, std::memory_order_release);
  }
  for (auto& item : work) item();
  return !work.empty();
}

bool Executor::run_ready() {
  // Only what is ready now: a coroutine that yields forever must not starve timers and pollers.
  size_t count = ready_.size();
  const bool any = count > 0;
  for (; count > 0; --count) {
    auto frame = ready_.front();
    ready_.pop_front();
    frame.resume();
  }
  return any;
}

bool Executor::run_timers() {
  if (timers_.empty()) return false;
  // Reading a real clock costs about as much as a whole turn; a timer may be late by a few busy
  // turns.
  if (!ready_.empty() && ++timer_skips_ < 16) return false;
  timer_skips_ = 0;
  const uint64_t now = clock_.now_ns();
  bool any = false;
  while (!timers_.empty() && timers_.top().time_ns <= now) {
    auto frame = timers_.top().frame;
    timers_.pop();
    frame.resume();
    any = true;
  }
  return any;
}

bool Executor::run_pollers() {
  size_t handled = 0;
  const bool nested = polling_;
  polling_ = true;
  for (size_t i = 0; i < pollers_.size(); ++i) {
    if (pollers_[i] != nullptr) handled += pollers_[i]->poll();
  }
  polling_ = nested;
  if (!nested) std::erase(pollers_, nullptr);
  return handled > 0;
}

bool Executor::run_once() {
  bool any = run_remote();
  any |= run_ready();
  any |= run_timers();
  any |= run_pollers();
  return any || !ready_.empty();
}

void Executor::run_round() {
  if (run_once()) {
    idle_since_ns_ = 0;
    idle_turns_ = 0;
    return;
  }
  if (!timers_.empty() && clock_.advance_to(std::max(clock_.now_ns(), timers_.top().time_ns)))
    return;
  idle();
}

void Executor::idle() {
  PMSTORE_CHECK(
      !clock_.advance_to(clock_.now_ns()),
      "in virtual time nothing is ready, no timer is set, and so nothing can ever happen");
  if (++idle_turns_ % 16 != 0) return;
  const uint64_t now = clock_.now_ns();
  if (idle_since_ns_ == 0) idle_since_ns_ = now;
  const uint64_t idle_ns = now - idle_since_ns_;
  if (idle_ns < options_.idle_spin_ns) return;
  if (idle_ns < options_.idle_yield_ns) {
    sched_yield();
    return;
  }
  uint64_t sleep_ns = options_.idle_sleep_ns;
  if (!timers_.empty()) {
    const uint64_t due = timers_.top().time_ns;
    sleep_ns = due <= now ? 0 : std::min(sleep_ns, due - now);
  }
  if (sleep_ns > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(sleep_ns));
}

void Executor::run_until_stopped() {
  while (!stop_requested()) run_round();
}

void WaitList::notify_one() {
  if (waiting_.empty()) return;
  executor_.post(waiting_.front());
  waiting_.pop_front();
}

void WaitList::notify_all() {
  while (!waiting_.empty()) notify_one();
}

}  // namespace pmstore::base
