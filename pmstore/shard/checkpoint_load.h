// CheckpointLoad: how the parts of a store take over what a checkpoint has of them.
//
// Each part adds tasks, which read sections, and steps that follow when all tasks have ended.
// Tasks run at the same time in several threads, so two of them never store to the same place;
// steps run in the caller's thread, in the order in which they were added.
// What failed leaves the parts half loaded: their owner discards them.
// Threads: the caller's, but for the tasks. The reader is borrowed.
#pragma once

#include <atomic>
#include <functional>
#include <utility>
#include <vector>

#include "base/workers.h"
#include "pmstore/shard/checkpoint_reader.h"

namespace pmstore::internal {

class CheckpointLoad {
 public:
  explicit CheckpointLoad(const CheckpointReader& reader) : reader_(reader) {}
  const CheckpointReader& reader() const { return reader_; }

  // False: what was read is not what was written.
  using Task = std::function<bool()>;
  void add(Task task) { tasks_.push_back(std::move(task)); }
  void add_step(Task step) { steps_.push_back(std::move(step)); }

  // Runs all of them; false as soon as one does not succeed.
  bool run(base::Workers& workers) {
    std::atomic<size_t> next{0};
    std::atomic<bool> failed{false};
    workers.run([&](size_t) {
      for (size_t i = next++; i < tasks_.size() && !failed; i = next++) {
        if (!tasks_[i]()) failed = true;
      }
    });
    for (size_t i = 0; i < steps_.size() && !failed; ++i) failed = !steps_[i]();
    return !failed;
  }

 private:
  const CheckpointReader& reader_;
  std::vector<Task> tasks_;
  std::vector<Task> steps_;
};

}  // namespace pmstore::internal
