// ViewedSlots: the slots whose records clients of this process look at where they lie, without a
// copy.
//
// A commit does not overwrite a viewed record: it moves the record to another slot, and leaves a
// tombstone that ends in front of the value (RecordStore::write_in_place()). The slot that the
// record has left is kept from reuse until its last view has ended. So a view costs at most one
// slot, and there are at most kMost views.
// Invariants: a viewed slot is not freed before free_kept(); a slot that is kept is freed once,
// when its last view ends, or by free_kept(). Threads: the server's. Lifetimes: transactions share
// the object, and it may outlive the store; behind end_of_store() it frees nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "base/result.h"
#include "pmstore/types.h"

namespace pmstore::internal {

class ViewedSlots {
 public:
  static constexpr size_t kMost = 65'536;  // views, of all transactions of the pool

  // `free_slot` gives a slot back for reuse.
  explicit ViewedSlots(std::function<void(SlotOffset)> free_slot);
  ViewedSlots(const ViewedSlots&) = delete;
  ViewedSlots& operator=(const ViewedSlots&) = delete;

  // One more view of the slot. BackPressure: kMost are held.
  Status begin_view(SlotOffset slot);
  // CHECK: the slot has a view.
  void end_view(SlotOffset slot);
  bool is_viewed(SlotOffset slot) const {
    if (used_ == 0) [[likely]]
      return false;
    return table_[place_of(slot)].views > 0;
  }
  // The slot's record is gone. Frees the slot, or keeps it until its last view has ended.
  void free_slot(SlotOffset slot);
  // The store closes, so no slot is used again while a view of it is held: frees all that are kept.
  void free_kept();
  // No slot is freed any more.
  void end_of_store() { free_slot_ = nullptr; }

  size_t views() const { return views_; }
  size_t kept() const { return kept_; }  // slots

 private:
  struct Entry {
    uint64_t slot = 0;
    uint32_t views = 0;  // 0: the entry is not in use
    bool kept = false;
  };
  size_t home_of(uint64_t slot) const { return slot * 0x9e3779b97f4a7c15 >> shift_; }
  // Of the slot's entry, or of the one that it would get.
  size_t place_of(SlotOffset slot) const {
    size_t at = home_of(raw(slot));
    while (table_[at].views > 0 && table_[at].slot != raw(slot)) at = (at + 1) & mask();
    return at;
  }
  size_t mask() const { return table_.size() - 1; }
  void grow();
  void remove(size_t at);

  std::function<void(SlotOffset)> free_slot_;
  std::vector<Entry> table_;  // open addressing, at most half full
  unsigned shift_;
  size_t used_ = 0;  // entries
  size_t views_ = 0;
  size_t kept_ = 0;
};

}  // namespace pmstore::internal
