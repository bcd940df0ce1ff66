// RingQueue: a first-in-first-out queue of small values that allocates only while it grows.
#pragma once

#include <cstddef>
#include <vector>

namespace pmstore::model {

template <typename T>
class RingQueue {
 public:
  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  T& front() { return slots_[head_]; }
  void push(const T& value) {
    if (size_ == slots_.size()) grow();
    slots_[(head_ + size_++) & (slots_.size() - 1)] = value;
  }
  T pop() {
    const T value = slots_[head_];
    head_ = (head_ + 1) & (slots_.size() - 1);
    --size_;
    return value;
  }

 private:
  void grow() {
    std::vector<T> larger(slots_.empty() ? 16 : slots_.size() * 2);
    for (size_t i = 0; i < size_; ++i) larger[i] = slots_[(head_ + i) & (slots_.size() - 1)];
    slots_.swap(larger);
    head_ = 0;
  }

  std::vector<T> slots_;  // a power of two of them
  size_t head_ = 0;
  size_t size_ = 0;
};

}  // namespace pmstore::model
