// IntrusiveList: a doubly linked list of objects that carry the links themselves: adding and
// removing one takes constant time and allocates nothing.
//
// Lifetimes: an object is removed before it is destroyed. One thread.
#pragma once

#include <cstddef>

#include "base/check.h"

namespace pmstore::fabric::internal {

// A member of T for each list in which a T may be.
template <typename T>
struct ListLinks {
  T* previous = nullptr;
  T* next = nullptr;
  bool listed = false;
};

template <typename T, ListLinks<T> T::*kLinks>
class IntrusiveList {
 public:
  IntrusiveList() = default;
  IntrusiveList(const IntrusiveList&) = delete;
  IntrusiveList& operator=(const IntrusiveList&) = delete;

  bool empty() const { return first_ == nullptr; }
  size_t size() const { return size_; }
  T* front() const { return first_; }
  // The one behind `item`; null behind the last.
  static T* next(const T& item) { return (item.*kLinks).next; }

  void push_back(T& item) {
    ListLinks<T>& links = item.*kLinks;
    PMSTORE_CHECK(!links.listed, "an object is in a list once");
    links = {last_, nullptr, true};
    (last_ == nullptr ? first_ : (last_->*kLinks).next) = &item;
    last_ = &item;
    ++size_;
  }
  void remove(T& item) {
    ListLinks<T>& links = item.*kLinks;
    PMSTORE_CHECK(links.listed && size_ > 0, "what is removed is in the list");
    (links.previous == nullptr ? first_ : (links.previous->*kLinks).next) = links.next;
    (links.next == nullptr ? last_ : (links.next->*kLinks).previous) = links.previous;
    links = {};
    --size_;
  }
  T& pop_front() {
    PMSTORE_CHECK(first_ != nullptr, "an empty list has no first object");
    T& first = *first_;
    remove(first);
    return first;
  }

 private:
  T* first_ = nullptr;
  T* last_ = nullptr;
  size_t size_ = 0;
};

}  // namespace pmstore::fabric::internal
