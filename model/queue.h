// Server and Window: the two ways in which modelled things make each other wait. Neither keeps a
// list of events: what comes is told at once when it will be done. One thread.
//
// Callers come in roughly increasing time. One that comes for a later time does not keep earlier
// ones waiting for longer than its own service.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pmstore::model {

// Does one thing at a time, in the order in which it was asked.
class Server {
 public:
  // When something that comes at `at_ps` and takes `service_ps` is done.
  uint64_t take(uint64_t at_ps, uint64_t service_ps) {
    free_ps_ = std::max(free_ps_, at_ps) + service_ps;
    return free_ps_;
  }
  uint64_t free_ps() const { return free_ps_; }

 private:
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
