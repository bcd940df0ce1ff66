// JointTask: a commit of transactions at several servers that runs to its end, also when the
// coroutine that awaits it is destroyed: what it has locked is unlocked then, and what is prepared
// is decided.
//
// It is in the list of every client whose transactions it commits; the first of them that is
// destroyed ends it. Threads: the executor's.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/task.h"
#include "pmstore/server/commit_end.h"

namespace pmstore::internal {

struct JointTask {
  base::Task<void> work;
  CommitEnd* awaited = nullptr;  // of the coroutine that awaits the commit
  bool ended = false;            // by end()

  bool is_over() const { return ended || work.done(); }

  // A client goes: its sessions are over, and with them what is only locked.
  void end() {
    ended = true;
    work = {};
    if (awaited == nullptr) return;
    awaited->finish(make_error(ErrorCode::kCommitUnknown,
                               "a client of a transaction of several servers was destroyed amid "
                               "its commit; settle it"));
  }
};

class JointTasks {
 public:
  JointTasks() = default;
  JointTasks(const JointTasks&) = delete;
  JointTasks& operator=(const JointTasks&) = delete;
  ~JointTasks() {
    for (const auto& each : std::exchange(tasks_, {})) {
      if (!each->is_over()) each->end();
    }
  }
  // Forgets those that have ended.
  void add(std::shared_ptr<JointTask> task) {
    std::erase_if(tasks_, [](const auto& each) { return each->is_over(); });
    tasks_.push_back(std::move(task));
  }

 private:
  std::vector<std::shared_ptr<JointTask>> tasks_;
};

}  // namespace pmstore::internal
