// Task<T>: a coroutine that starts when it is awaited and gives one value.
//
// The holder of a Task owns it; destroying an unfinished Task destroys its frame and
// everything in it. Resumption is by symmetric transfer, so chains of awaits need no stack. Errors
// are values (Result<T>); an exception that leaves a Task ends the program. A Task and everything
// it awaits stay on one executor's thread. Note for g++ 12: name the arguments of a coroutine that
// is awaited in the same expression; braced temporaries inside a co_await expression are destroyed
// twice there.
#pragma once

#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/frame_pool.h"

namespace pmstore::base {

template <typename T>
class Task;

namespace internal {

struct PromiseBase {
  std::coroutine_handle<> continuation = std::noop_coroutine();

  static void* operator new(size_t bytes) { return FramePool::allocate(bytes); }
  static void operator delete(void* frame, size_t bytes) noexcept {
    FramePool::release(frame, bytes);
  }

  std::suspend_always initial_suspend() noexcept { return {}; }
  struct FinalAwaiter {
    bool await_ready() noexcept { return false; }
    template <typename Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> frame) noexcept {
      return frame.promise().continuation;
    }
    void await_resume() noexcept {}
  };
  FinalAwaiter final_suspend() noexcept { return {}; }
  void unhandled_exception() noexcept { std::terminate(); }
};

template <typename T>
struct Promise : PromiseBase {
  std::optional<T> value;
  Task<T> get_return_object();
  template <typename U>
  void return_value(U&& result) {
    value.emplace(std::forward<U>(result));
  }
  T take() { return std::move(*value); }
};

template <>
struct Promise<void> : PromiseBase {
  Task<void> get_return_object();
  void return_void() {}
  void take() {}
};

}  // namespace internal

template <typename T = void>
class [[nodiscard]] Task {
 public:
  using promise_type = internal::Promise<T>;
  using Handle = std::coroutine_handle<promise_type>;

  Task() = default;
  explicit Task(Handle frame) : frame_(frame) {}
  Task(Task&& other) noexcept : frame_(std::exchange(other.frame_, {})) {}
  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      if (frame_) frame_.destroy();
      frame_ = std::exchange(other.frame_, {});
    }
    return *this;
  }
  ~Task() {
    if (frame_) frame_.destroy();
  }

  auto operator co_await() && noexcept {
    struct Awaiter {
      Handle frame;
      bool await_ready() noexcept { return false; }
      // Not by symmetric transfer: g++ makes that a tail call only when it optimises without
      // sanitizers, and a loop over tasks that finish inline would then use up the stack.
      bool await_suspend(std::coroutine_handle<> caller) noexcept {
        frame.resume();
        if (frame.done()) return false;  // the caller goes on without a suspension
        frame.promise().continuation = caller;
        return true;
      }
      T await_resume() { return frame.promise().take(); }
    };
    return Awaiter{frame_};
  }

  // For an executor: run until the first suspension; ask; take the value once done.
  void start() {
    PMSTORE_CHECK(frame_ && !frame_.done(), "a task is started once");
    frame_.resume();
  }
  bool done() const { return frame_.done(); }
  T take() { return frame_.promise().take(); }

 private:
  Handle frame_;
};

namespace internal {
template <typename T>
Task<T> Promise<T>::get_return_object() {
  return Task<T>(std::coroutine_handle<Promise<T>>::from_promise(*this));
}
inline Task<void> Promise<void>::get_return_object() {
  return Task<void>(std::coroutine_handle<Promise<void>>::from_promise(*this));
}
}  // namespace internal

}  // namespace pmstore::base

namespace pmstore {
using base::Task;
}
