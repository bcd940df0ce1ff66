#include "base/sleeper.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace pmstore::base {

namespace {

Error no_descriptor(const char* what) {
  return make_error(ErrorCode::kIo, std::string("cannot create ") + what + ": " + strerror(errno) +
                                        "; check the limit of open files");
}

}  // namespace

Sleeper::Sleeper(FileDescriptor epoll, FileDescriptor bell)
    : epoll_(std::move(epoll)), bell_(std::move(bell)) {}

Sleeper::Sleeper(Sleeper&& other) noexcept
    : epoll_(std::move(other.epoll_)),
      bell_(std::move(other.bell_)),
      watched_(std::exchange(other.watched_, 0)) {}

Result<Sleeper> Sleeper::open() {
  FileDescriptor epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return no_descriptor("an epoll set");
  FileDescriptor bell(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!bell) return no_descriptor("an eventfd");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = nullptr;  // the bell
  if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, bell.get(), &event) != 0) {
    return make_error(ErrorCode::kIo, std::string("cannot watch an eventfd: ") + strerror(errno) +
                                          "; check fs.epoll.max_user_watches");
  }
  return Sleeper(std::move(epoll), std::move(bell));
}

Status Sleeper::watch(int fd, uint32_t events, Watched& watched) {
  epoll_event event{};
  event.events = events;
  event.data.ptr = &watched;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return make_error(ErrorCode::kIo, std::string("cannot watch a descriptor: ") + strerror(errno) +
                                          "; check fs.epoll.max_user_watches");
  }
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

void Sleeper::wait(uint64_t timeout_ns) {
  epoll_event ready[kMaxReady];
  int count = 0;
  if (timeout_ns == 0) {
    count = epoll_wait(epoll_.get(), ready, kMaxReady, 0);
  } else if (timeout_ns == kForever) {
    count = epoll_wait(epoll_.get(), ready, kMaxReady, -1);
  } else {
    const timespec timeout{static_cast<time_t>(timeout_ns / 1'000'000'000),
                           static_cast<long>(timeout_ns % 1'000'000'000)};
    count = epoll_pwait2(epoll_.get(), ready, kMaxReady, &timeout, nullptr);
    if (count < 0 && errno == ENOSYS) {  // Linux before 5.11
      const uint64_t timeout_ms = (timeout_ns + 999'999) / 1'000'000;
      count = epoll_wait(epoll_.get(), ready, kMaxReady,
                         static_cast<int>(timeout_ms < 60'000 ? timeout_ms : 60'000));
    }
  }
  PMSTORE_CHECK(count >= 0 || errno == EINTR, "waiting on an epoll set of our own works");
  for (int i = 0; i < count; ++i) {
    if (auto* const watched = static_cast<Watched*>(ready[i].data.ptr)) {
      watched->on_ready(ready[i].events);
    } else {
      uint64_t rings;
      // Nothing to read is fine: the bell only ends the wait.
      [[maybe_unused]] const ssize_t got = read(bell_.get(), &rings, sizeof rings);
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
