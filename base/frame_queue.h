// FrameQueue: coroutine frames in the order in which they will be resumed. One thread.
//
// A ring that doubles when full and never shrinks: after warming up it does not allocate, which
// std::deque does once per 64 entries for as long as it is used.
#pragma once

#include <coroutine>
#include <cstddef>
#include <memory>

namespace pmstore::base {

class FrameQueue {
 public:
  bool empty() const { return head_ == tail_; }
  size_t size() const { return tail_ - head_; }

  void push(std::coroutine_handle<> frame) {
    if (size() > mask_) [[unlikely]] {
      grow();
    }
    ring_[tail_++ & mask_] = frame;
  }
  // Not on an empty queue.
  std::coroutine_handle<> pop() { return ring_[head_++ & mask_]; }

  // Every entry of `frame`, which is being destroyed, becomes one that does nothing.
  void forget(std::coroutine_handle<> frame) {
    for (size_t i = head_; i != tail_; ++i) {
      if (ring_[i & mask_] == frame) ring_[i & mask_] = std::noop_coroutine();
    }
  }

 private:
  static constexpr size_t kInitial = 64;

  void grow() {
    const size_t count = size();
    auto larger = std::make_unique<std::coroutine_handle<>[]>(count * 2);
    for (size_t i = 0; i < count; ++i) larger[i] = pop();
    ring_ = std::move(larger);
    mask_ = count * 2 - 1;
    head_ = 0;
    tail_ = count;
  }

  // Entries head_ .. tail_ - 1, each at its number modulo the size mask_ + 1, a power of two.
  std::unique_ptr<std::coroutine_handle<>[]> ring_ =
      std::make_unique<std::coroutine_handle<>[]>(kInitial);
  size_t mask_ = kInitial - 1;
  size_t head_ = 0;
  size_t tail_ = 0;
};

}  // namespace pmstore::base
