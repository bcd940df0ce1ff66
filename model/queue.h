// Server and Window: the two ways in which modelled things make each other wait. Neither keeps a
// list of events: what comes is told at once when it will be done. One thread.
//
// A caller may come for a time later than now: the later lines of a large access, what follows a
// read. Others that come for now must not wait for it, so a Server's time is given out from now on
// in the order of the calls, and who comes for later waits until then besides.
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

// Does one thing at a time, in the order in which it was asked.
class Server {
 public:
  // `now` is borrowed; without one, now is the time of each call.
  explicit Server(const Now* now = nullptr) : now_(now) {}

  // When something that comes at `at_ps` and takes `service_ps` is done.
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

// Room for `places` things at a time; whoever comes when it is full waits until the one that came
// `places` earlier has left.
class Window {
 public:
  explicit Window(size_t places) : left_ps_(places, 0) {}

  // When there is room for one that comes at `at_ps`. enter() follows.
  uint64_t room_at(uint64_t at_ps) const { return std::max(at_ps, left_ps_[next_]); }
  void enter(uint64_t leaves_ps) {
    left_ps_[next_] = leaves_ps;
    if (++next_ == left_ps_.size()) next_ = 0;
  }

 private:
  std::vector<uint64_t> left_ps_;  // of the last `places` that came
  size_t next_ = 0;                // the oldest
};

}  // namespace pmstore::model
