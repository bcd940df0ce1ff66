// OwnTasks: work that runs to its end even if the coroutine that awaits it is destroyed.
//
// A call of the namespace holds locks while its transaction commits, and a commit cannot be taken
// back; so the locks must be held until it has ended, whatever its caller does. Destroying OwnTasks
// destroys the work that runs.
// Invariant: a task is destroyed only while it is suspended at its end, or with all others.
// Threads: one executor's. Lifetimes: outlives those who await; the work borrows nothing of them.
#pragma once

#include <iterator>
#include <list>
#include <memory>
#include <optional>
#include <utility>

#include "base/executor.h"
#include "base/task.h"

namespace pmstore::fs::internal {

class OwnTasks {
 public:
  explicit OwnTasks(Executor& executor) : executor_(executor) {}

  // Starts `work` when awaited, and gives its value.
  template <typename T>
  base::Task<T> run(base::Task<T> work) {
    auto answer = std::make_shared<Answer<T>>(executor_);
    start(answer_with(std::move(work), answer));
    while (!answer->value) co_await answer->given.wait();
    co_return std::move(*answer->value);
  }
  // The same, and nobody waits for it.
  void start(base::Task<void> work) {
    ended_.clear();
    running_.push_back({});
    const Position position = std::prev(running_.end());
    *position = run_to_end(std::move(work), position);
    position->start();
  }

 private:
  using Tasks = std::list<base::Task<void>>;
  using Position = Tasks::iterator;
  template <typename T>
  struct Answer {
    explicit Answer(Executor& executor) : given(executor) {}
    std::optional<T> value;
    base::WaitList given;
  };

  template <typename T>
  static base::Task<void> answer_with(base::Task<T> work, std::shared_ptr<Answer<T>> answer) {
    {
      // Its frame is destroyed before anybody hears of its end: with the locks that it holds.
      base::Task<T> taken = std::move(work);
      answer->value.emplace(co_await std::move(taken));
    }
    answer->given.notify_all();
  }
  base::Task<void> run_to_end(base::Task<void> work, Position position) {
    {
      base::Task<void> taken = std::move(work);
      co_await std::move(taken);
    }
    // It still runs: destroyed when the next one starts.
    ended_.splice(ended_.end(), running_, position);
  }

  Executor& executor_;
  Tasks ended_;
  Tasks running_;  // last: destroyed first
};

}  // namespace pmstore::fs::internal
