// Sleeper: blocks one thread until a watched descriptor is ready, a time has come, or another
// thread wakes it: one epoll set, one eventfd and one timer descriptor.
//
// Most waits have a bound that is never reached: the deadline of a request that is answered. Giving
// each wait its own timeout made it 2.5 us dearer (Linux 6.18 in a guest). So the timer stays set
// from wait to wait as long as it is not later than the present bound; it may end a wait too early.
//
// Threads: all calls on the thread that sleeps, except wake(), which any thread and a signal
// handler may call. Descriptors are borrowed: unwatch() before closing one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/file_descriptor.h"
#include "base/result.h"
#include "base/sleep_flag.h"

namespace pmstore::base {

// Is told that a descriptor is ready.
class Watched {
 public:
  virtual ~Watched() = default;
  // `events`: as epoll_wait(2) gives them. Only notes the event; the next poll handles it. Must not
  // destroy anything, nor watch or unwatch.
  virtual void on_ready(uint32_t events) = 0;
};

class Sleeper {
 public:
  static constexpr uint64_t kForever = UINT64_MAX;

  // Io without a free descriptor.
  static Result<Sleeper> open();

  // Calls watched.on_ready() as long as `fd` is ready for `events` (EPOLLIN, EPOLLOUT;
  // level-triggered) at each wait(). Io when the limit of watches is reached
  // (fs.epoll.max_user_watches).
  Status watch(int fd, uint32_t events, Watched& watched);
  // Changes the events of a watched descriptor; 0: none for now.
  void change(int fd, uint32_t events, Watched& watched);
  void unwatch(int fd);
  size_t watched() const { return watched_; }

  // The flag by which this thread announces that it blocks; see base/sleep_flag.h.
  SleepFlag& flag() { return flag_; }
  // Blocks until something is ready, wake() was called, or the time is `due_ns`. Does not block if
  // that is not after `now_ns`. May return early. Tells what is ready.
  void wait(uint64_t now_ns, uint64_t due_ns);
  // Tells what is ready, without blocking.
  void look() { wait(0, 0); }
  // Makes the current or next wait() return if the thread has announced that it sleeps. Any thread;
  // async-signal-safe.
  void wake() {
    if (flag_.claim()) ring();
  }

  Sleeper(Sleeper&& other) noexcept;
  Sleeper& operator=(Sleeper&&) = delete;

 private:
  Sleeper(FileDescriptor epoll, FileDescriptor bell, FileDescriptor timer);
  void ring();
  // The timer ends the wait at `due_ns` or before. False: that is nearer than kNearNs, and the wait
  // has to have a timeout of its own.
  bool set_timer(uint64_t now_ns, uint64_t due_ns);

  static constexpr int kMaxReady = 64;
  static constexpr uint64_t kNearNs = 100'000;

  FileDescriptor epoll_;
  FileDescriptor bell_;   // an eventfd
  FileDescriptor timer_;  // a timerfd
  SleepFlag flag_;
  uint64_t timer_due_ns_ = kForever;  // what the timer is set to; kForever: it is not set
  size_t watched_ = 0;
};

}  // namespace pmstore::base
