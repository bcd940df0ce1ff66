// Executor: runs the coroutines, timers and pollers of one core.
//
// One thread owns an executor and makes every call except post_remote() and request_stop(). All
// waiting in log/, pmstore/ and fs/ is a coroutine suspended here; nothing there sleeps, blocks or
// reads time. With a RealClock an executor that has nothing to do spins as long as that pays
// (base/spin_window.h), then blocks until a watched descriptor, a timer, a poller's next event or
// another thread wakes it. With a VirtualClock it jumps to the next timer or poller's event, so a
// simulation runs as fast as it can and the same seed gives the same run.
// Lifetimes: an executor outlives every coroutine that waits on it. A coroutine may be destroyed
// while it waits here (sleeping, yielding, in a WaitList): it is then never resumed.
#pragma once

#include <atomic>
#include <coroutine>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/frame_queue.h"
#include "base/random.h"
#include "base/sleeper.h"
#include "base/spin_window.h"
#include "base/task.h"

namespace pmstore::base {

// An event source that is polled in every round: a completion queue, an event channel.
class Poller {
 public:
  virtual ~Poller() = default;
  // Handles the events that have arrived, without blocking; returns their number.
  virtual size_t poll() = 0;
  // The time of the next event that is known already: in the model an effect, in real time a
  // deadline. In virtual time the executor jumps there; in real time, once armed, poll() runs then
  // at the latest. kNoEvent: none is known.
  static constexpr uint64_t kNoEvent = UINT64_MAX;
  virtual uint64_t next_event_ns() const { return kNoEvent; }
  // Before the executor blocks, in real time only: from now on each event wakes the executor, by a
  // descriptor that it watches (Executor::watch()) or by Executor::wake(). False: poll() would find
  // something now, so the executor must not block. Makes no callbacks.
  virtual bool arm() = 0;
  // After arm() gave true: the executor runs again. The next poll() finds what has arrived.
  virtual void disarm() {}
};

struct ExecutorOptions {
  uint64_t seed = 1;
  PollMode poll = PollMode::kAdaptive;
  // Whether pollers may use io_uring where the kernel has it.
  bool io_uring = true;
};

class Executor {
 public:
  explicit Executor(Clock& clock, ExecutorOptions options = {});
  // Destroys the spawned tasks that have not finished.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  Clock& clock() { return clock_; }
  uint64_t now_ns() const { return clock_.now_ns(); }
  Random& random() { return random_; }
  const ExecutorOptions& options() const { return options_; }

  // Starts `task` in the next turn and keeps it until it finishes.
  void spawn(Task<void> task);
  // Resumes `frame` in this or the next turn.
  void post(std::coroutine_handle<> frame) { ready_.push(frame); }
  // For the destructor of an awaiter whose frame is posted or sleeps: the frame is not resumed.
  void forget(std::coroutine_handle<> frame);
  // Any thread: runs `work` on this executor's thread.
  void post_remote(std::function<void()> work);

  // `poller` is borrowed until removed. A poller may be removed from inside its own poll().
  void add_poller(Poller* poller);
  void remove_poller(Poller* poller);

  // In real time: calls watched.on_ready() while `fd` is ready for `events` (EPOLLIN, EPOLLOUT), in
  // each look at the descriptors. A busy executor looks every kTurnsPerLook turns, and when a
  // poller asks (look()). Borrowed until unwatched. Io at the limits of open files or watches.
  Status watch(int fd, uint32_t events, Watched& watched);
  void change_watch(int fd, uint32_t events, Watched& watched) {
    sleeper_->change(fd, events, watched);
  }
  void unwatch(int fd) { sleeper_->unwatch(fd); }
  // Looks at the descriptors now, without blocking, unless this turn has looked already. For a
  // poller that would otherwise make a system call for each descriptor.
  void look();
  // Whether a look follows before anything else happens, because nothing is ready: then a poller
  // need not look by itself.
  bool about_to_look() const {
    return ready_.empty() && window_.window_ns() == 0 && turns_since_look_ < kQuietTurns;
  }
  // Whether the executor finds events by polling, without looking at descriptors.
  bool spinning() const { return window_.window_ns() > 0; }
  // Any thread, also a signal handler: wakes this executor if it is blocked.
  void wake() {
    // What is told of is published before waker_ is read: the first block may be under way.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (Sleeper* const sleeper = waker_.load(std::memory_order_acquire)) sleeper->wake();
  }

  // One round: remote work, ready coroutines, due timers, every poller once. True if anything
  // happened.
  bool run_once();

  // Whether nothing is ready and no timer is due up to and including `time_ns`. Then a poller in
  // virtual time may let time pass until `time_ns` before it returns.
  bool quiet_until(uint64_t time_ns) const {
    return ready_.empty() && (timers_.empty() || timers_.front().time_ns > time_ns) &&
           !has_remote_.load(std::memory_order_relaxed) && !stop_requested();
  }

  // Runs until `task` is done and gives its value. This is the blocking use. In virtual time it is
  // a CHECK failure if nothing can ever make progress again. Rounds nest: not to be called from a
  // coroutine.
  template <typename T>
  T run(Task<T> task) {
    task.start();
    while (!task.done()) run_round();
    return task.take();
  }

  // Runs until request_stop(), then returns. The request stays set.
  void run_until_stopped();
  // Any thread, also a signal handler.
  void request_stop() {
    // What stops may end the executor's life at once: its destructor waits for this call.
    calls_.fetch_add(1, std::memory_order_acquire);
    stop_.store(true, std::memory_order_release);
    wake();
    calls_.fetch_sub(1, std::memory_order_release);
  }
  bool stop_requested() const { return stop_.load(std::memory_order_acquire); }

  // The number of spawned tasks that have not finished.
  size_t spawned() const { return spawned_count_; }

  class SleepAwaiter {
   public:
    SleepAwaiter(Executor& executor, uint64_t until_ns)
        : executor_(executor), until_ns_(until_ns) {}
    SleepAwaiter(const SleepAwaiter&) = delete;
    SleepAwaiter& operator=(const SleepAwaiter&) = delete;
    ~SleepAwaiter() {
      if (frame_) executor_.forget(frame_);
    }
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> frame) {
      frame_ = frame;
      executor_.add_timer(until_ns_, frame);
    }
    void await_resume() { frame_ = nullptr; }

   private:
    Executor& executor_;
    uint64_t until_ns_;
    std::coroutine_handle<> frame_;  // set while suspended
  };
  SleepAwaiter sleep_until(uint64_t time_ns) { return {*this, time_ns}; }
  SleepAwaiter sleep_for(uint64_t duration_ns) { return {*this, now_ns() + duration_ns}; }

  class YieldAwaiter {
   public:
    explicit YieldAwaiter(Executor& executor) : executor_(executor) {}
    YieldAwaiter(const YieldAwaiter&) = delete;
    YieldAwaiter& operator=(const YieldAwaiter&) = delete;
    ~YieldAwaiter() {
      if (frame_) executor_.forget(frame_);
    }
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> frame) {
      frame_ = frame;
      executor_.post(frame);
    }
    void await_resume() { frame_ = nullptr; }

   private:
    Executor& executor_;
    std::coroutine_handle<> frame_;  // set while suspended
  };
  // Lets everything else that is ready run first.
  YieldAwaiter yield() { return YieldAwaiter(*this); }

 private:
  struct Timer {
    uint64_t time_ns;
    uint64_t order;  // equal times fire in the order they were set
    std::coroutine_handle<> frame;
    bool operator>(const Timer& other) const {
      return time_ns != other.time_ns ? time_ns > other.time_ns : order > other.order;
    }
  };
  struct Detached;
  struct Spawned;  // the promise of a Detached

  void add_timer(uint64_t time_ns, std::coroutine_handle<> frame);
  bool run_ready();
  bool run_timers();
  bool run_pollers();
  bool run_remote();
  // run_once(); if nothing happened, spins or blocks, or advances virtual time.
  void run_round();
  // The earliest of timers and pollers' events; Poller::kNoEvent without any.
  uint64_t next_due_ns() const;
  // Makes sleeper_ if it is not there. Io without a free descriptor.
  Status open_sleeper();
  // Nothing happened in the last turn: spins or blocks.
  void idle();
  // Something happened after turns in which nothing did.
  void end_idle();
  void block(uint64_t now_ns);
  // Whether more threads want to run than there are processors.
  void measure_crowding(uint64_t now_ns);
  static Detached run_detached(Executor& executor, Task<void> task);

  Clock& clock_;
  const ExecutorOptions options_;
  Random random_;
  FrameQueue ready_;
  std::vector<Timer> timers_;  // a heap, the earliest first
  uint64_t timer_order_ = 0;
  unsigned timer_skips_ = 0;
  std::vector<Poller*> pollers_;
  bool polling_ = false;
  Spawned* spawned_ = nullptr;  // doubly linked
  size_t spawned_count_ = 0;
  static constexpr unsigned kTurnsPerLook = 128;
  // An executor that has not looked for so many turns is not about to: something keeps it busy.
  static constexpr unsigned kQuietTurns = 8;
  // Reading a real clock costs about as much as a turn, so it is not done at each.
  static constexpr unsigned kIdleTurnsPerClock = 16;
  // The longest block of an executor that has no descriptor to be woken by.
  static constexpr uint64_t kDeafSleepNs = 200'000;
  SpinWindow window_;
  std::optional<Sleeper> sleeper_;  // from the first watch() or block() on
  std::atomic<Sleeper*> waker_{nullptr};
  const unsigned processors_;
  uint64_t idle_since_ns_ = 0;  // 0: not idle
  unsigned idle_turns_ = 0;
  unsigned turns_since_look_ = 0;
  bool looked_ = false;         // at the descriptors, in this turn or right before it
  bool until_stopped_ = false;  // in run_until_stopped()
  std::atomic<bool> stop_{false};
  std::atomic<unsigned> calls_{0};  // of other threads, that are under way
  std::atomic<bool> has_remote_{false};
  std::mutex remote_mutex_;
  std::vector<std::function<void()>> remote_;
};

// Coroutines of one executor waiting for something to happen. Not thread-safe. When a WaitList is
// destroyed, those that wait in it are never resumed (and may still be destroyed). A waiter that
// notify_one() has chosen and that is destroyed before it runs passes the notification on to the
// next one, so that no notification is lost.
//
// Invariant: chosen_ holds the waiters that notify_one() has posted and that have not run yet.
class WaitList {
 public:
  class Awaiter {
   public:
    explicit Awaiter(WaitList& list) : executor_(list.executor_), list_(&list) {}
    Awaiter(const Awaiter&) = delete;
    Awaiter& operator=(const Awaiter&) = delete;
    ~Awaiter();
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> frame);
    void await_resume();

   private:
    friend class WaitList;
    Executor& executor_;
    WaitList* list_;  // null when notify_all() has posted this waiter, or when the list is gone
    bool chosen_ = false;  // by notify_one(); in the list's chosen_
    Awaiter* previous_ = nullptr;
    Awaiter* next_ = nullptr;
    std::coroutine_handle<> frame_;  // set while suspended
  };

  explicit WaitList(Executor& executor) : executor_(executor) {}
  ~WaitList();
  WaitList(const WaitList&) = delete;
  WaitList& operator=(const WaitList&) = delete;

  // Suspends until notified. The caller checks its condition again afterwards.
  Awaiter wait() { return Awaiter(*this); }
  // Wakes the coroutine that has waited longest, or all; they run in this or the next turn.
  void notify_one();
  void notify_all();
  size_t waiting() const { return waiting_.size; }
  // The number of waiters that notify_one() has chosen and that have not run yet. Each was woken
  // for one unit of a resource. A coroutine that takes units without waiting must leave that many,
  // or a coroutine that never suspends could starve the waiters.
  size_t chosen() const { return chosen_.size; }

 private:
  // Of awaiters, doubly linked.
  struct List {
    Awaiter* first = nullptr;
    Awaiter* last = nullptr;
    size_t size = 0;
    void append(Awaiter& awaiter);
    void unlink(Awaiter& awaiter);
  };
  void forget(List& list);

  Executor& executor_;
  List waiting_;
  List chosen_;
};

}  // namespace pmstore::base

namespace pmstore {
using base::Executor;
}
