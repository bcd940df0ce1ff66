#include "pmstore/shard/written_slots.h"

#include <algorithm>
#include <functional>

namespace pmstore::internal {

void WrittenSlots::note_write(const SlabArena& arena, const LoggedWrite& write) {
  // An image that does not fit its slot was never put there.
  const auto slab = arena.slab_at(write.slot);
  if (!slab || write.image.size() > kSlotBytes[slab->size_class]) return;
  slots_.emplace_back(raw(write.slot), write.image.size());
}

void WrittenSlots::flush(RecordStore& records) {
  // A record that is written often is in many redo records; its lines are flushed once.
  std::sort(slots_.begin(), slots_.end(), std::greater<>());  // per slot, the longest first
  uint64_t last = UINT64_MAX;
  for (const auto& [slot, bytes] : slots_) {
    if (slot != last) {
      records.memory().flush(records.arena().at(static_cast<SlotOffset>(slot)), bytes);
    }
    last = slot;
  }
}

}  // namespace pmstore::internal
