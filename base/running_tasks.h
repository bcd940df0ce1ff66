// RunningTasks: tasks that run to their ends even if those who wait for them are destroyed.
//
// They belong to the owner of the RunningTasks; destroying it destroys those that run. Invariant: a
// task is destroyed only while it is suspended at its end, or with all others. Threads: the
// executor's.
#pragma once

#include <iterator>
#include <list>
#include <utility>

#include "base/check.h"
#include "base/task.h"

namespace pmstore::base {

class RunningTasks {
 public:
  using Tasks = std::list<Task<void>>;
  using Position = Tasks::iterator;

  // Starts `task`, which runs to its end or to the end of its owner. A task that has ended() does
  // not call this.
  void run(Task<void> task) {
    // Those that have ended are suspended at their ends by now: none of them is the caller.
    ended_.clear();
    running_.push_back(std::move(task));
    running_.back().start();
  }
  // The task that was started last: its own position, for a task that has not suspended yet.
  Position started_last() {
    PMSTORE_CHECK(!running_.empty(), "a task that asks for its position runs");
    return std::prev(running_.end());
  }
  // The last step of a task: its frame is destroyed later, because it still runs.
  void ended(Position task) {
    PMSTORE_CHECK(!running_.empty(), "a task that ends was running");
    ended_.splice(ended_.end(), running_, task);
  }

 private:
  Tasks ended_;
  Tasks running_;  // last: destroyed first
};

}  // namespace pmstore::base
