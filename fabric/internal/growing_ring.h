// GrowingRing: a queue of trivial objects in a ring of memory that grows by need and is given back
// when the queue has been empty for a while. Its owner bounds it.
//
// One thread. Allocates only when it holds more than ever since give_back().
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>

#include "base/check.h"

namespace pmstore::fabric::internal {

template <typename T>
class GrowingRing {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  // In the order in which they came.
  T& operator[](size_t i) { return items_[(first_ + i) & (capacity_ - 1)]; }
  const T& operator[](size_t i) const { return items_[(first_ + i) & (capacity_ - 1)]; }

  // References to others are valid no more.
  T& push_back(const T& item) {
    if (size_ == capacity_) [[unlikely]]
      grow();
    T& added = (*this)[size_++];
    added = item;
    return added;
  }
  void pop_front() {
    PMSTORE_CHECK(size_ > 0, "an empty queue has no first object");
    first_ = (first_ + 1) & (capacity_ - 1);
    --size_;
  }
  // Keeps the first `count`.
  void truncate(size_t count) {
    PMSTORE_CHECK(count <= size_, "a queue does not grow by forgetting");
    size_ = count;
  }

  // Whether give_back() has an effect.
  bool has_surplus() const { return size_ == 0 && capacity_ > kKept; }
  void give_back() {
    if (!has_surplus()) return;
    items_.reset();
    capacity_ = first_ = 0;
  }

 private:
  static constexpr size_t kKept = 8;

  void grow() {
    const size_t capacity = capacity_ == 0 ? kKept : 2 * capacity_;
    auto items = std::make_unique_for_overwrite<T[]>(capacity);
    for (size_t i = 0; i < size_; ++i) items[i] = (*this)[i];
    items_ = std::move(items);
    capacity_ = capacity;
    first_ = 0;
  }

  std::unique_ptr<T[]> items_;
  size_t capacity_ = 0;  // a power of two, or 0
  size_t first_ = 0;
  size_t size_ = 0;
};

}  // namespace pmstore::fabric::internal
