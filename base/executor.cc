#include "base/executor.h"

#include <sched.h>

#include <algorithm>
#include <functional>
#include <thread>
#include <utility>

namespace pmstore::base {

// The promise of a spawned task's frame: an entry of Executor::spawned_.
struct Executor::Spawned {
  static void* operator new(size_t bytes) { return FramePool::allocate(bytes); }
  static void operator delete(void* frame, size_t bytes) noexcept {
    FramePool::release(frame, bytes);
  }
  Detached get_return_object();
  std::suspend_always initial_suspend() noexcept { return {}; }
  std::suspend_never final_suspend() noexcept { return {}; }
  void return_void() {}
  void unhandled_exception() noexcept { std::terminate(); }

  Spawned(Executor& owner, Task<void>&) : executor(owner), next(owner.spawned_) {
    if (next != nullptr) next->previous = this;
    executor.spawned_ = this;
    ++executor.spawned_count_;
  }
  ~Spawned() {
    (previous == nullptr ? executor.spawned_ : previous->next) = next;
    if (next != nullptr) next->previous = previous;
    PMSTORE_CHECK(executor.spawned_count_ > 0, "each spawned task ends once");
    --executor.spawned_count_;
  }

  Executor& executor;
  Spawned* previous = nullptr;
  Spawned* next;
};

// The frame around a spawned task; it destroys itself when the task is done.
struct Executor::Detached {
  using promise_type = Spawned;
  std::coroutine_handle<Spawned> frame;
};

Executor::Detached Executor::Spawned::get_return_object() {
  return {std::coroutine_handle<Spawned>::from_promise(*this)};
}

Executor::Detached Executor::run_detached(Executor&, Task<void> task) { co_await std::move(task); }

Executor::Executor(Clock& clock, ExecutorOptions options)
    : clock_(clock), options_(options), random_(options.seed) {}

Executor::~Executor() {
  // Each promise takes itself off the list.
  while (spawned_ != nullptr) std::coroutine_handle<Spawned>::from_promise(*spawned_).destroy();
}

void Executor::spawn(Task<void> task) { post(run_detached(*this, std::move(task)).frame); }

void Executor::post_remote(std::function<void()> work) {
  std::lock_guard lock(remote_mutex_);
  remote_.push_back(std::move(work));
  has_remote_.store(true, std::memory_order_release);
}

void Executor::add_poller(Poller* poller) {
  PMSTORE_CHECK(std::find(pollers_.begin(), pollers_.end(), poller) == pollers_.end(),
                "a poller is added once");
  pollers_.push_back(poller);
}

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
  timers_.push_back(Timer{time_ns, timer_order_++, frame});
  std::push_heap(timers_.begin(), timers_.end(), std::greater<>());
}

void Executor::forget(std::coroutine_handle<> frame) {
  ready_.forget(frame);
  if (std::erase_if(timers_, [frame](const Timer& timer) { return timer.frame == frame; }) > 0) {
    std::make_heap(timers_.begin(), timers_.end(), std::greater<>());
  }
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
    ready_.pop().resume();
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
  // Only timers set before now: a coroutine that sleeps for no time must not starve the rest.
  const uint64_t first_new = timer_order_;
  bool any = false;
  while (!timers_.empty() && timers_.front().time_ns <= now && timers_.front().order < first_new) {
    std::pop_heap(timers_.begin(), timers_.end(), std::greater<>());
    auto frame = timers_.back().frame;
    timers_.pop_back();
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
  if (const uint64_t due = next_due_ns(); due != Poller::kNoEvent) {
    if (clock_.advance_to(std::max(clock_.now_ns(), due))) return;
  }
  idle();
}

uint64_t Executor::next_due_ns() const {
  uint64_t due = timers_.empty() ? Poller::kNoEvent : timers_.front().time_ns;
  for (const Poller* poller : pollers_) {
    if (poller != nullptr) due = std::min(due, poller->next_event_ns());
  }
  return due;
}

void Executor::idle() {
  PMSTORE_CHECK(
      !clock_.advance_to(clock_.now_ns()),
      "in virtual time nothing is ready, no timer or event is set: nothing can ever happen");
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
    const uint64_t due = timers_.front().time_ns;
    sleep_ns = due <= now ? 0 : std::min(sleep_ns, due - now);
  }
  if (sleep_ns > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(sleep_ns));
}

void Executor::run_until_stopped() {
  while (!stop_requested()) run_round();
}

WaitList::~WaitList() {
  forget(waiting_);
  forget(chosen_);
}

// The awaiters of `list` outlive this WaitList.
void WaitList::forget(List& list) {
  for (Awaiter* at = list.first; at != nullptr; at = at->next_) at->list_ = nullptr;
}

void WaitList::List::append(Awaiter& awaiter) {
  awaiter.previous_ = last;
  awaiter.next_ = nullptr;
  (last == nullptr ? first : last->next_) = &awaiter;
  last = &awaiter;
  ++size;
}

void WaitList::List::unlink(Awaiter& awaiter) {
  PMSTORE_CHECK(size > 0, "a waiter is in one list, once");
  (awaiter.previous_ == nullptr ? first : awaiter.previous_->next_) = awaiter.next_;
  (awaiter.next_ == nullptr ? last : awaiter.next_->previous_) = awaiter.previous_;
  --size;
}

void WaitList::notify_one() {
  if (waiting_.first == nullptr) return;
  Awaiter& awaiter = *waiting_.first;
  waiting_.unlink(awaiter);
  awaiter.chosen_ = true;
  chosen_.append(awaiter);
  executor_.post(awaiter.frame_);
}

void WaitList::notify_all() {
  while (waiting_.first != nullptr) {
    Awaiter& awaiter = *waiting_.first;
    waiting_.unlink(awaiter);
    awaiter.list_ = nullptr;  // all have been told: there is nothing to pass on
    executor_.post(awaiter.frame_);
  }
}

void WaitList::Awaiter::await_suspend(std::coroutine_handle<> frame) {
  PMSTORE_CHECK(list_ != nullptr, "a WaitList that is gone cannot notify its waiters");
  frame_ = frame;
  list_->waiting_.append(*this);
}

void WaitList::Awaiter::await_resume() {
  frame_ = nullptr;
  if (std::exchange(chosen_, false) && list_ != nullptr) list_->chosen_.unlink(*this);
}

WaitList::Awaiter::~Awaiter() {
  if (!frame_) return;
  if (list_ == nullptr) {
    executor_.forget(frame_);  // may be posted, not resumed yet
    return;
  }
  if (!chosen_) {
    list_->waiting_.unlink(*this);
    return;
  }
  executor_.forget(frame_);
  list_->chosen_.unlink(*this);
  list_->notify_one();
}

}  // namespace pmstore::base
