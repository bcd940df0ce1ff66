// CommitTasks: commits that run to their end even if their callers are destroyed.
//
// Once a commit holds locks it must unlock them, and once it has logged it must apply: so it is a
// task of its own, which belongs to the client. Destroying CommitTasks destroys the commits that
// run. Invariant: a task is destroyed only while it is suspended at its end, or with all others.
// Threads: the executor's.
#pragma once

#include <iterator>
#include <list>
#include <utility>

#include "base/check.h"
#include "base/task.h"

namespace pmstore::internal {

class CommitTasks {
 public:
  using Tasks = std::list<base::Task<void>>;
  using Position = Tasks::iterator;

  // Starts `commit`, which runs to its end or to the end of the client. A commit does not call
  // this.
  void run(base::Task<void> commit) {
    // Those that have ended are suspended at their ends by now: none of them is the caller.
    ended_.clear();
    running_.push_back(std::move(commit));
    running_.back().start();
  }
  // The task that was started last: its own position, for a task that has not suspended yet.
  Position started_last() {
    PMSTORE_CHECK(!running_.empty(), "a commit that asks for its position runs");
    return std::prev(running_.end());
  }
  // The last step of a commit: its frame is destroyed later, because it still runs.
  void ended(Position commit) {
    PMSTORE_CHECK(!running_.empty(), "a commit that ends was running");
    ended_.splice(ended_.end(), running_, commit);
  }

 private:
  Tasks ended_;
  Tasks running_;  // last: destroyed first
};

}  // namespace pmstore::internal
