#include "base/sleeper.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace pmstore::base {

namespace {

// What epoll gives for the descriptors of the Sleeper's own: their addresses.
char kBell, kTimer;

Error no_descriptor(const char* what) {
  return make_error(ErrorCode::kIo, std::string("cannot create ") + what + ": " + strerror(errno) +
                                        "; check the limit of open files");
}

Error no_watch() {
  return make_error(ErrorCode::kIo, std::string("cannot watch a descriptor: ") + strerror(errno) +
                                        "; check fs.epoll.max_user_watches");
}

}  // namespace

Sleeper::Sleeper(FileDescriptor epoll, FileDescriptor bell, FileDescriptor timer)
    : epoll_(std::move(epoll)), bell_(std::move(bell)), timer_(std::move(timer)) {}

Sleeper::Sleeper(Sleeper&& other) noexcept
    : epoll_(std::move(other.epoll_)),
      bell_(std::move(other.bell_)),
      timer_(std::move(other.timer_)),
      timer_due_ns_(other.timer_due_ns_),
      watched_(std::exchange(other.watched_, 0)) {}

Result<Sleeper> Sleeper::open() {
  FileDescriptor epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return no_descriptor("an epoll set");
  FileDescriptor bell(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!bell) return no_descriptor("an eventfd");
  FileDescriptor timer(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!timer) return no_descriptor("a timer descriptor");
  // Edge-triggered: each ring and each expiration is told once, and nothing has to be read.
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  event.data.ptr = &kBell;
  bool added = epoll_ctl(epoll.get(), EPOLL_CTL_ADD, bell.get(), &event) == 0;
  event.data.ptr = &kTimer;
  added = added && epoll_ctl(epoll.get(), EPOLL_CTL_ADD, timer.get(), &event) == 0;
  if (!added) return no_watch();
  return Sleeper(std::move(epoll), std::move(bell), std::move(timer));
}

Status Sleeper::watch(int fd, uint32_t events, Watched& watched) {
  epoll_event event{};
  event.events = events;
  event.data.ptr = &watched;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return no_watch();
  ++watched_;
  return {};
}

void Sleeper::change(int fd, uint32_t events, Watched& watched) {
  epoll_event event{};
  event.events = events;
  event.data.ptr = &watched;
  PMSTORE_CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) == 0,
                "only a watched descriptor changes its events");
}

void Sleeper::unwatch(int fd) {
  PMSTORE_CHECK(watched_ > 0 && epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr) == 0,
                "a descriptor is unwatched once, before it is closed");
  --watched_;
}

[[gnu::hot]] bool Sleeper::set_timer(uint64_t now_ns, uint64_t due_ns) {
  if (due_ns == kForever || (timer_due_ns_ <= due_ns && timer_due_ns_ > now_ns)) return true;
  PMSTORE_CHECK(due_ns > now_ns, "a wait whose time has come does not block");
  const uint64_t left_ns = due_ns - now_ns;
  if (left_ns < kNearNs) return false;
  itimerspec expiration{};
  expiration.it_value = {static_cast<time_t>(left_ns / 1'000'000'000),
                         static_cast<long>(left_ns % 1'000'000'000)};
  PMSTORE_CHECK(timerfd_settime(timer_.get(), 0, &expiration, nullptr) == 0,
                "a timer takes any time to come");
  timer_due_ns_ = due_ns;
  return true;
}

[[gnu::hot]] void Sleeper::wait(uint64_t now_ns, uint64_t due_ns) {
  epoll_event ready[kMaxReady];
  int count = 0;
  if (due_ns <= now_ns) {
    count = epoll_wait(epoll_.get(), ready, kMaxReady, 0);
  } else if (set_timer(now_ns, due_ns)) {
    count = epoll_wait(epoll_.get(), ready, kMaxReady, -1);
  } else {
    const timespec timeout{0, static_cast<long>(due_ns - now_ns)};
    count = epoll_pwait2(epoll_.get(), ready, kMaxReady, &timeout, nullptr);
    // Linux before 5.11, and containers that do not know the call.
    if (count < 0 && (errno == ENOSYS || errno == EPERM)) {
      count = epoll_wait(epoll_.get(), ready, kMaxReady, 1);
    }
  }
  // A signal, or a stop of the process, ends the wait without telling what is ready.
  if (count < 0 && errno == EINTR) count = epoll_wait(epoll_.get(), ready, kMaxReady, 0);
  PMSTORE_CHECK(count >= 0 || errno == EINTR, "waiting on an epoll set of our own works");
  for (int i = 0; i < count; ++i) {
    if (ready[i].data.ptr == &kTimer) {
      timer_due_ns_ = kForever;
    } else if (ready[i].data.ptr != &kBell) {
      static_cast<Watched*>(ready[i].data.ptr)->on_ready(ready[i].events);
    }
  }
}

void Sleeper::ring() {
  const int saved = errno;
  const uint64_t one = 1;
  // A full counter has a ring that is not read yet, which is as good.
  [[maybe_unused]] const ssize_t put = write(bell_.get(), &one, sizeof one);
  errno = saved;
}

}  // namespace pmstore::base
