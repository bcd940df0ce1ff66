// Answer<T>: a value that is there already, or the task that will give it.
//
// For operations that usually end in the call that begins them: such an answer needs no coroutine
// frame. The caller awaits it in the expression that makes it, because the rest of the operation
// runs from then on; what the operation borrows is borrowed until the answer is there. Threads: one
// executor's.
#pragma once

#include <optional>
#include <utility>

#include "base/task.h"

namespace pmstore::base {

template <typename T>
class [[nodiscard]] Answer {
 public:
  Answer(T value) : value_(std::move(value)) {}
  Answer(Task<T> task) : task_(std::move(task)) {}

  // The value that is there already; nullptr: await the answer.
  T* value() { return value_ ? &*value_ : nullptr; }

  auto operator co_await() && noexcept {
    struct Awaiter {
      Answer& answer;
      decltype(std::declval<Task<T>>().operator co_await()) task;
      bool await_ready() noexcept { return answer.value_.has_value(); }
      bool await_suspend(std::coroutine_handle<> caller) noexcept {
        return task.await_suspend(caller);
      }
      T await_resume() { return answer.value_ ? std::move(*answer.value_) : task.await_resume(); }
    };
    return Awaiter{*this, std::move(task_).operator co_await()};
  }

 private:
  std::optional<T> value_;
  Task<T> task_;  // empty when the value is there
};

}  // namespace pmstore::base
