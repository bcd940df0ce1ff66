// HeldViews: what one transaction looks at without a copy: records in their slots; and copies of
// values that it has written itself, which have no slot yet.
//
// Invariant: each view of a slot ends once, with end() or with this object. Threads: the
// executor's. Lifetimes: it may outlive the store; the bytes in the slots do not.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "pmstore/shard/viewed_slots.h"
#include "pmstore/types.h"

namespace pmstore::internal {

class HeldViews {
 public:
  HeldViews() = default;
  HeldViews(const HeldViews&) = delete;
  HeldViews& operator=(const HeldViews&) = delete;
  ~HeldViews() { end(); }

  size_t count() const { return views_.size() + copies_.size(); }

  // The transaction views the record in `slot` from here on. Errors of ViewedSlots::begin_view().
  Status add(const std::shared_ptr<ViewedSlots>& slots, SlotOffset slot) {
    if (slots_ != slots) [[unlikely]] {
      PMSTORE_CHECK(views_.empty(), "a transaction works on one store");
      slots_ = slots;
    }
    PMSTORE_TRY_STATUS(slots->begin_view(slot));
    views_.push_back(slot);
    return {};
  }
  // A copy that is there as long as a view is.
  std::string_view add_copy(std::string_view value) {
    copied_bytes_ += value.size();
    return copies_.emplace_back(value);
  }
  size_t copied_bytes() const { return copied_bytes_; }

  void end() {
    for (const SlotOffset slot : views_) slots_->end_view(slot);
    views_.clear();
    copies_.clear();
    copied_bytes_ = 0;
  }

 private:
  std::shared_ptr<ViewedSlots> slots_;  // kept for the next transaction
  std::vector<SlotOffset> views_;
  std::list<std::string> copies_;
  size_t copied_bytes_ = 0;
};

}  // namespace pmstore::internal
