// TableScan: walks the slots of a store to answer for a table as a whole: pages of its records, and
// how much it holds.
//
// A walk is cut into calls of bounded time. A position says where the next call continues: the
// offset of the first slot that was not visited; 0 begins a walk and, as a result, ends it.
// Threads: the server's; the records borrowed must outlive it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/atomic_copy.h"
#include "pmstore/layout/protocol.h"
#include "pmstore/shard/record_store.h"

namespace pmstore::internal {

class TableScan {
 public:
  explicit TableScan(const RecordStore& records) : records_(records) {}

  // Where the records of a page go.
  class Page {
   public:
    virtual ~Page() = default;
    // The views end with the call. False: there is no room, and nothing was added.
    virtual bool add(const RecordView& record) = 0;
  };
  // A page of records, of ScanRequest::max_bytes as a reply would have them; the first one may be
  // larger. Gives the head of the reply. The page is not a snapshot: each record is whole and was
  // there at some moment. Errors: UnknownTable; Damaged, unless the request skips damaged records;
  // Conflict when the first record of the page is locked; TooLarge when there is no room for it.
  Result<ScanReply> page(const ScanRequest& request, Page& page) const;
  // The same as a reply: fills ScanReply, then ScanItem, key, value of each record, into `room`;
  // gives their size. TooLarge also when there is no room for a ScanReply.
  Result<size_t> page(const ScanRequest& request, std::span<std::byte> room) const;

  // What was found from `cursor` on, in one call; the caller adds up. UnknownTable.
  Result<TableUsageReply> usage(TableId table, uint64_t cursor) const;
  // Of an ordered table only the number of its keys. UnknownTable, also of a hash table.
  Result<TableUsageReply> ordered_usage(TableId table) const;

  // Calls visit(slot, slab, header) -> bool for the slots from `position` on that hold a live
  // record, until it says false or kSlotsPerVisit slots were visited. Gives the next position.
  // The header is a copy that was not checked: a client may be changing the record.
  static constexpr uint64_t kSlotsPerVisit = 1 << 14;  // bounds the time of one call
  template <typename Visit>
  uint64_t visit(uint64_t position, Visit visit) const;

  // The key of the record of `table` in `slot`, copied into `room`, if the index shows the slot for
  // this key; else nullopt.
  using KeyRoom = char[kMaxKeyBytes];
  std::optional<IndexKey> indexed_key(SlotOffset slot, TableId table, KeyRoom& room) const;

 private:
  // What a scan of a table finds in a slot.
  enum class Seen : uint8_t { kNone, kRecord, kLocked, kDamaged };
  Seen read_slot(const SlabArena::Slab& slab, SlotOffset slot, TableId table,
                 std::vector<std::byte>& image, std::optional<RecordView>& record) const;
  // Calls each(slab, slot) -> bool for every slot from `position` on, until it says false; gives
  // that slot, or nullopt at the end.
  template <typename Each>
  std::optional<SlotOffset> walk(uint64_t position, Each each) const;

  const RecordStore& records_;
};

template <typename Each>
std::optional<SlotOffset> TableScan::walk(uint64_t position, Each each) const {
  const SlabArena& arena = records_.arena();
  auto slab = arena.slab_from(
      static_cast<uint32_t>(std::min<uint64_t>(position / kChunkBytes, UINT32_MAX)));
  for (; slab; slab = arena.slab_from(slab->first_chunk + run_chunks_of(slab->size_class))) {
    const uint32_t slots = slots_per_slab(slab->size_class);
    const uint64_t first = raw(arena.slot_of(*slab, 0));
    const uint64_t stride = kSlotBytes[slab->size_class];
    uint64_t i = position > first ? (position - first + stride - 1) / stride : 0;
    for (; i < slots; ++i) {
      const SlotOffset slot = arena.slot_of(*slab, static_cast<uint32_t>(i));
      if (!each(*slab, slot)) return slot;
    }
    position = 0;
  }
  return std::nullopt;
}

template <typename Visit>
uint64_t TableScan::visit(uint64_t position, Visit visit) const {
  uint64_t visited = 0;
  bool enough = false;
  const auto last = walk(position, [&](const SlabArena::Slab& slab, SlotOffset slot) {
    if (++visited > kSlotsPerVisit) return false;
    RecordHeader header;
    base::copy_from_shared(&header, records_.arena().at(slot), sizeof(header));
    const bool record =
        header.state == RecordState::kLive && header.version > slab.base_version &&
        header.key_bytes() > 0 &&
        record_bytes(header.key_bytes(), header.value_bytes) <= kSlotBytes[slab.size_class];
    enough = record && !visit(slot, slab, header);
    return !enough;
  });
  if (!last) return 0;
  return raw(*last) + (enough ? 1 : 0);  // 1: the slot behind the one that was enough
}

}  // namespace pmstore::internal
