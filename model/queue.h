// Server and Window: the two ways in which modelled parts make each other wait. Neither keeps a
// list of events: each request is told when it will be done as soon as it is made. One thread.
//
// A caller may ask for a time later than now: the later lines of a large access, the step after a
// read. Requests for now must not wait for such a request, so a Server's time is allocated from now
// on in the order of the calls, and a request for later waits until its time as well.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pmstore::model {

// The modelled now, which the owner of a machine moves with each call from outside.
class Now {
 public:
  uint64_t ps() const { return ps_; }
  void move_to(uint64_t ps) { ps_ = std::max(ps_, ps); }

 private:
  uint64_t ps_ = 0;
};

// Serves one request at a time, in the order of the calls.
class Server {
 public:
  // `now` is borrowed; without one, now is the time of each call.
  explicit Server(const Now* now = nullptr) : now_(now) {}

  // The time at which a request of `at_ps` that takes `service_ps` is done.
  uint64_t take(uint64_t at_ps, uint64_t service_ps) {
    const uint64_t now_ps = now_ == nullptr ? at_ps : std::min(now_->ps(), at_ps);
    const uint64_t begin_ps = std::max(free_ps_, now_ps);
    free_ps_ = begin_ps + service_ps;
    return std::max(begin_ps, at_ps) + service_ps;
  }

 private:
  const Now* now_;
  uint64_t free_ps_ = 0;
};

// Room for `capacity` requests at a time. When it is full, a request waits until the one that
// entered `capacity` requests earlier has left.
class Window {
 public:
  explicit Window(size_t capacity) : left_ps_(capacity, 0) {}

  // The time at which there is room for a request of `at_ps`. enter() follows.
  uint64_t room_at(uint64_t at_ps) const { return std::max(at_ps, left_ps_[next_]); }
  void enter(uint64_t leaves_ps) {
    left_ps_[next_] = leaves_ps;
    if (++next_ == left_ps_.size()) next_ = 0;
  }

 private:
  std::vector<uint64_t> left_ps_;  // of the last requests that entered
  size_t next_ = 0;                // the oldest
};

}  // namespace pmstore::model
