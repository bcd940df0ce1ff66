#include "pmstore/shard/viewed_slots.h"

#include <string>
#include <utility>

#include "base/check.h"

namespace pmstore::internal {
namespace {

constexpr unsigned kFirstBits = 8;

}  // namespace

ViewedSlots::ViewedSlots(std::function<void(SlotOffset)> free_slot)
    : free_slot_(std::move(free_slot)), table_(size_t{1} << kFirstBits), shift_(64 - kFirstBits) {}

Status ViewedSlots::begin_view(SlotOffset slot) {
  if (views_ >= kMost) {
    return make_error(ErrorCode::kBackPressure,
                      "transactions hold " + std::to_string(kMost) +
                          " views of records of this pool; end some of them");
  }
  size_t at = place_of(slot);
  if (table_[at].views == 0) {
    if (2 * (used_ + 1) > table_.size()) {
      grow();
      at = place_of(slot);
    }
    table_[at] = {raw(slot), 0, false};
    ++used_;
  }
  PMSTORE_CHECK(!table_[at].kept, "a slot that its record has left is not viewed again");
  ++table_[at].views;
  ++views_;
  return {};
}

void ViewedSlots::end_view(SlotOffset slot) {
  const size_t at = place_of(slot);
  PMSTORE_CHECK(table_[at].views > 0 && views_ > 0, "a view ends once");
  --views_;
  if (--table_[at].views > 0) return;
  const bool kept = table_[at].kept;
  remove(at);
  if (!kept) return;
  PMSTORE_CHECK(kept_ > 0, "a kept slot is counted");
  --kept_;
  if (free_slot_) free_slot_(slot);
}

void ViewedSlots::free_slot(SlotOffset slot) {
  PMSTORE_CHECK(free_slot_ != nullptr, "no record goes behind the end of the store");
  if (!is_viewed(slot)) return free_slot_(slot);
  Entry& entry = table_[place_of(slot)];
  PMSTORE_CHECK(!entry.kept, "a slot is freed once");
  entry.kept = true;
  ++kept_;
}

void ViewedSlots::free_kept() {
  for (Entry& entry : table_) {
    if (!std::exchange(entry.kept, false)) continue;
    --kept_;
    free_slot_(SlotOffset{entry.slot});
  }
  PMSTORE_CHECK(kept_ == 0, "a kept slot is counted");
}

void ViewedSlots::grow() {
  const std::vector<Entry> before = std::exchange(table_, std::vector<Entry>(2 * table_.size()));
  --shift_;
  for (const Entry& entry : before) {
    if (entry.views > 0) table_[place_of(SlotOffset{entry.slot})] = entry;
  }
}

// Entries behind the removed one move up, so that each is found from its home on without a gap.
void ViewedSlots::remove(size_t at) {
  size_t gap = at;
  for (size_t next = (gap + 1) & mask(); table_[next].views > 0; next = (next + 1) & mask()) {
    const size_t from_home = (next - home_of(table_[next].slot)) & mask();
    if (from_home < ((next - gap) & mask())) continue;
    table_[gap] = table_[next];
    gap = next;
  }
  table_[gap] = {};
  --used_;
}

}  // namespace pmstore::internal
