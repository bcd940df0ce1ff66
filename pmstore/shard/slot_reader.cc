#include "pmstore/shard/slot_reader.h"

#include <span>

namespace pmstore::internal {

SlotContent SlotReader::read(const SlabArena::Slab& slab, SlotOffset slot) const {
  const std::span<const std::byte> bytes(arena_.at(slot), kSlotBytes[slab.size_class]);
  if (never_written(bytes)) return {SlotState::kNeverWritten, {}};
  const auto record = check_record(bytes, slot);
  // At or below the base version it is a leftover of an earlier use of the chunk.
  if (!record || record->version() <= slab.base_version) return {SlotState::kDamaged, {}};
  if (!record->live()) return {SlotState::kTombstone, record};
  const auto table = static_cast<TableId>(record->header->table);
  if (catalog_.exists(table)) return {SlotState::kLive, record};
  return {catalog_.was_dropped(table) ? SlotState::kDropped : SlotState::kLost, record};
}

std::optional<uint16_t> SlotReader::lost_table() const {
  std::optional<uint16_t> lost;
  for_each_slot([&](const SlabArena::Slab& slab, SlotOffset slot) {
    const SlotContent content = read(slab, slot);
    if (content.state == SlotState::kLost) lost = content.record->header->table;
  });
  return lost;
}

bool SlotReader::must_apply(const LoggedWrite& write) const {
  // The slab was given back after the record was deleted, and is used for something else now.
  const auto slab = arena_.slab_at(write.slot);
  if (!slab || write.image.size() > kSlotBytes[slab->size_class] ||
      write.record.version() <= slab->base_version) {
    return false;
  }
  // A slot whose checksum fails counts as older than everything.
  const std::span<const std::byte> bytes(arena_.at(write.slot), kSlotBytes[slab->size_class]);
  const auto present = check_record(bytes, write.slot);
  return !present || present->version() < write.record.version();
}

}  // namespace pmstore::internal
