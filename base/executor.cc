#include "base/executor.h"

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
    : clock_(clock),
      options_(options),
      random_(options.seed),
      window_(options.poll),
      processors_(own_processors()) {}

Executor::~Executor() {
  // Each promise takes itself off the list.
  while (spawned_ != nullptr) std::coroutine_handle<Spawned>::from_promise(*spawned_).destroy();
  // Work or a stop may have been taken before the call that brought it has returned.
  while (calls_.load(std::memory_order_acquire) > 0) std::this_thread::yield();
}

void Executor::spawn(Task<void> task) { post(run_detached(*this, std::move(task)).frame); }

void Executor::post_remote(std::function<void()> work) {
  calls_.fetch_add(1, std::memory_order_acquire);
  {
    std::lock_guard lock(remote_mutex_);
    remote_.push_back(std::move(work));
    has_remote_.store(true, std::memory_order_release);
  }
  wake();
  calls_.fetch_sub(1, std::memory_order_release);
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

[[gnu::hot]] void Executor::add_timer(uint64_t time_ns, std::coroutine_handle<> frame) {
  timers_.push_back(Timer{time_ns, timer_order_++, frame});
  std::push_heap(timers_.begin(), timers_.end(), std::greater<>());
}

void Executor::forget(std::coroutine_handle<> frame) {
  ready_.forget(frame);
  if (std::erase_if(timers_, [frame](const Timer& timer) { return timer.frame == frame; }) > 0) {
    std::make_heap(timers_.begin(), timers_.end(), std::greater<>());
  }
}

[[gnu::hot]] bool Executor::run_remote() {
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

[[gnu::hot]] bool Executor::run_ready() {
  // Only what is ready now: a coroutine that yields forever must not starve timers and pollers.
  size_t count = ready_.size();
  const bool any = count > 0;
  for (; count > 0; --count) {
    ready_.pop().resume();
  }
  return any;
}

[[gnu::hot]] bool Executor::run_timers() {
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

[[gnu::hot]] bool Executor::run_pollers() {
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

[[gnu::hot]] bool Executor::run_once() {
  if (++turns_since_look_ >= kTurnsPerLook) look();
  bool any = run_remote();
  any |= run_ready();
  any |= run_timers();
  any |= run_pollers();
  looked_ = false;
  return any || !ready_.empty();
}

[[gnu::hot]] void Executor::run_round() {
  const bool any = run_once();
  if (clock_.is_virtual()) {
    if (any) return;
    const uint64_t due = next_due_ns();
    PMSTORE_CHECK(
        due != Poller::kNoEvent,
        "in virtual time nothing is ready, no timer or event is set: nothing can ever happen");
    clock_.advance_to(std::max(clock_.now_ns(), due));
    return;
  }
  if (!any) {
    idle();
  } else if (idle_turns_ > 0) {
    end_idle();
  }
}

[[gnu::hot]] uint64_t Executor::next_due_ns() const {
  uint64_t due = timers_.empty() ? Poller::kNoEvent : timers_.front().time_ns;
  for (const Poller* poller : pollers_) {
    if (poller != nullptr) due = std::min(due, poller->next_event_ns());
  }
  return due;
}

Status Executor::open_sleeper() {
  PMSTORE_CHECK(sleeper_.has_value() == (waker_.load(std::memory_order_relaxed) != nullptr),
                "others wake what there is");
  if (sleeper_) return {};
  PMSTORE_TRY(Sleeper opened, Sleeper::open());
  sleeper_.emplace(std::move(opened));
  waker_.store(&*sleeper_, std::memory_order_release);
  return {};
}

Status Executor::watch(int fd, uint32_t events, Watched& watched) {
  PMSTORE_TRY_STATUS(open_sleeper());
  return sleeper_->watch(fd, events, watched);
}

[[gnu::hot]] void Executor::look() {
  turns_since_look_ = 0;
  if (looked_ || !sleeper_ || sleeper_->watched() == 0) return;
  sleeper_->look();
  looked_ = true;
}

[[gnu::hot]] void Executor::idle() {
  const uint64_t window_ns = window_.window_ns();
  ++idle_turns_;
  if (window_ns == SpinWindow::kForever) return;
  if (window_ns > 0 && idle_turns_ % kIdleTurnsPerClock != 0) return;
  const uint64_t now_ns = clock_.now_ns();
  if (idle_since_ns_ == 0) idle_since_ns_ = now_ns;
  if (window_.wants_crowding(now_ns)) measure_crowding(now_ns);
  if (now_ns - idle_since_ns_ >= window_ns) block(now_ns);
}

[[gnu::hot]] void Executor::end_idle() {
  if (idle_since_ns_ == 0) {
    window_.count_short_wait();
  } else {
    const uint64_t now_ns = clock_.now_ns();
    window_.count_wait(now_ns, now_ns - idle_since_ns_);
  }
  idle_since_ns_ = 0;
  idle_turns_ = 0;
}

void Executor::measure_crowding(uint64_t now_ns) {
  if (runnable_threads() > processors_) {
    window_.count_crowded(now_ns);
  } else {
    window_.count_uncrowded(now_ns);
  }
}

[[gnu::hot]] void Executor::block(uint64_t now_ns) {
  const bool hears = open_sleeper().has_value();
  // First: a poller may be told of an event by wake() as soon as it has looked.
  if (hears) sleeper_->flag().announce();
  const size_t pollers = pollers_.size();
  size_t armed = 0;
  bool quiet = true;
  for (; quiet && armed < pollers_.size(); ++armed) {
    if (pollers_[armed] != nullptr) quiet = pollers_[armed]->arm();
  }
  if (!quiet) --armed;  // the last one has not armed
  PMSTORE_CHECK(ready_.empty(), "nothing is ready when an executor blocks: arming resumes nobody");
  if (quiet) {
    const bool called =
        has_remote_.load(std::memory_order_relaxed) || (until_stopped_ && stop_requested());
    const uint64_t due_ns = called ? now_ns : next_due_ns();
    if (hears) {
      sleeper_->wait(now_ns, due_ns);
      looked_ = true;
      turns_since_look_ = 0;
    } else {
      const uint64_t left_ns = due_ns > now_ns ? due_ns - now_ns : 0;
      std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(left_ns, kDeafSleepNs)));
    }
  }
  if (hears) sleeper_->flag().clear();
  PMSTORE_CHECK(pollers_.size() == pollers,
                "arming and watching only note: no poller comes or goes");
  for (size_t i = 0; i < armed; ++i) {
    if (pollers_[i] != nullptr) pollers_[i]->disarm();
  }
}

void Executor::run_until_stopped() {
  until_stopped_ = true;
  while (!stop_requested()) run_round();
  until_stopped_ = false;
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
