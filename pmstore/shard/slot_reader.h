// SlotReader: says what the slots of a pool hold, while the pool is not served.
//
// It is the one implementation of this for recovery, which rebuilds the index from it, for the
// check of a pool, and for the check before a start: so all three agree on which records are live
// and which are damaged. It changes nothing. Threads: one. Arena and catalog are borrowed.
#pragma once

#include <optional>

#include "pmstore/layout/record.h"
#include "pmstore/layout/shard_record.h"
#include "pmstore/shard/slab_arena.h"
#include "pmstore/shard/table_catalog.h"

namespace pmstore::internal {

enum class SlotState : uint8_t {
  kNeverWritten,  // since its slab was claimed
  kDamaged,       // neither never written nor a whole record of this slab
  kTombstone,     // of an erased record: the slot is free
  kDropped,       // a live record of a table that was dropped: the slot is free
  kLost,          // a live record of a table that the catalog has lost
  kLive,
};

struct SlotContent {
  SlotState state;
  std::optional<RecordView> record;  // from kTombstone on; lies in the slot
};

class SlotReader {
 public:
  SlotReader(const SlabArena& arena, const TableCatalog& catalog)
      : arena_(arena), catalog_(catalog) {}

  SlotContent read(const SlabArena::Slab& slab, SlotOffset slot) const;

  // A table of which there is a live record and which the catalog has lost.
  std::optional<uint16_t> lost_table() const;

  // Must the write of a redo record be put in place? Not when its slot has a record of the same or
  // a later version, or is not used any more as it was when the redo record was logged.
  bool must_apply(const LoggedWrite& write) const;

  // Calls visit(slab, slot) for every slot, in ascending order.
  template <typename Visit>
  void for_each_slot(Visit visit) const {
    arena_.for_each_slab([&](const SlabArena::Slab& slab) {
      for (uint32_t i = 0; i < slots_per_slab(slab.size_class); ++i) {
        visit(slab, arena_.slot_of(slab, i));
      }
    });
  }

 private:
  const SlabArena& arena_;
  const TableCatalog& catalog_;
};

}  // namespace pmstore::internal
