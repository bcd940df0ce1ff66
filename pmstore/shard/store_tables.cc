// Tables as a whole: how much they hold, and how they go. docs/store.md, Tables, says why a drop is
// one 8-byte store and what may be left of a dropped table.

#include <algorithm>
#include <cstring>

#include "base/atomic_copy.h"
#include "pmstore/layout/record.h"
#include "pmstore/shard/store.h"

namespace pmstore::internal {

namespace {

constexpr uint64_t kSlotsPerCall = 1 << 14;  // bounds the time of one call
constexpr uint16_t kServerOwner = 0;

}  // namespace

// Calls visit(slot, slab, header) -> bool for the slots from `position` on that hold a record,
// up to one for which it says false, or until enough were looked at. Gives the position to go on
// at; 0 at the end.
template <typename Visit>
uint64_t Store::visit_slots(uint64_t position, Visit visit) const {
  uint64_t looked_at = 0;
  auto slab = arena_.slab_from(
      static_cast<uint32_t>(std::min<uint64_t>(position / kChunkBytes, UINT32_MAX)));
  for (; slab; slab = arena_.slab_from(slab->first_chunk + run_chunks_of(slab->size_class))) {
    const uint32_t slots = slots_per_slab(slab->size_class);
    const uint64_t first = raw(arena_.slot_of(*slab, 0));
    const uint64_t stride = kSlotBytes[slab->size_class];
    uint64_t i = position > first ? (position - first + stride - 1) / stride : 0;
    for (; i < slots; ++i) {
      const SlotOffset slot = arena_.slot_of(*slab, static_cast<uint32_t>(i));
      if (++looked_at > kSlotsPerCall) return raw(slot);
      RecordHeader header;
      base::copy_from_shared(&header, arena_.at(slot), sizeof(header));
      const bool record = header.state == RecordState::kLive &&
                          header.version > slab->base_version && header.key_bytes > 0 &&
                          record_bytes(header.key_bytes, header.value_bytes) <= stride;
      if (record && !visit(slot, *slab, header)) return raw(slot) + 1;  // on to the next slot
    }
    position = 0;
  }
  return 0;
}

// Of a record of `table` that the index shows at `slot`; nothing when it is no longer shown.
std::optional<KeyHash> Store::hash_of_indexed(SlotOffset slot, TableId table) const {
  RecordHeader header;
  base::copy_from_shared(&header, arena_.at(slot), sizeof(header));
  const auto slab = arena_.slab_at(slot);
  if (!slab || record_bytes(header.key_bytes, 0) > kSlotBytes[slab->size_class]) {
    return std::nullopt;
  }
  char key[kMaxKeyBytes];
  base::copy_from_shared(key, arena_.at(slot) + sizeof(header), header.key_bytes);
  const KeyHash hash = hash_key(table, {key, header.key_bytes});
  if (!index_.contains(hash, slot)) return std::nullopt;
  return hash;
}

Result<TableUsageReply> Store::table_usage(TableId table, uint64_t cursor) const {
  if (!catalog_.exists(table)) return catalog_.unknown(table);
  TableUsageReply usage{};
  const auto count = [&](SlotOffset slot, const SlabArena::Slab& slab, const RecordHeader& header) {
    if (header.table != raw(table) || reservation(slot) || !hash_of_indexed(slot, table)) {
      return true;
    }
    ++usage.records;
    usage.key_bytes += header.key_bytes;
    usage.value_bytes += header.value_bytes;
    usage.slot_bytes += kSlotBytes[slab.size_class];
    return true;
  };
  usage.cursor = visit_slots(cursor, count);
  return usage;
}

// ---- the end of a table ----

Status Store::drop_table(TableId table) {
  if (failed_) {
    return make_error(ErrorCode::kIo,
                      "the server can no longer make anything durable; see its messages");
  }
  const Status dropped = catalog_.drop_table(table);
  if (!dropped) failed_ = true;
  return dropped;
}

bool Store::is_reserved_in(TableId table) const {
  return std::any_of(pending_.begin(), pending_.end(),
                     [&](const auto& entry) { return entry.second.table == table; });
}

// The slot's word has the version above its record's: whoever remembers the place does not take
// what lies there for the record any more, and cannot lock it.
void Store::unindex_freed(SlotOffset slot, KeyHash hash) {
  const uint64_t bucket = index_.bucket_of(hash);
  index_.begin_change(bucket);
  index_.erase(hash, slot);
  index_.end_change(bucket);
}

base::Task<Status> Store::free_record(WordChanger& changer, SlotOffset slot, TableId table,
                                      FreeingCursor& cursor) {
  const LockWord word = words_.load(slot);
  if (word.is_locked()) {
    // By a commit, which unlocks it, or a client that is gone, whose locks go with its lease.
    cursor.met_lock = true;
    co_return Status{};
  }
  // Nobody but this locks for the server: so, if the answer is lost, it can be asked for again.
  const LockWord locked = LockWord::locked(word.version(), kServerOwner);
  PMSTORE_CO_TRY(const bool mine, co_await changer.compare_swap(slot, word, locked));
  if (!mine) {
    cursor.met_lock = true;
    co_return Status{};
  }
  // Looked at behind the lock: whatever was committed there before is what is freed.
  const auto hash = hash_of_indexed(slot, table);
  if (hash) unindex_freed(slot, *hash);
  const LockWord gone = LockWord::unlocked(word.version() + (hash ? 1 : 0));
  PMSTORE_CO_TRY(const bool unlocked, co_await changer.compare_swap(slot, locked, gone));
  // Else the slot is not used again before the next start, as where reserve() fails.
  if (unlocked && hash) arena_.free_slot(slot);
  co_return Status{};
}

base::Task<Status> Store::free_dropped(WordChanger* changer, TableId table, FreeingCursor& cursor) {
  // An insert or a move that was under way at the drop ends first: it may still be logged, and is
  // then put in place behind the cursor. New ones are refused.
  if (cursor.position == 0 && is_reserved_in(table)) co_return Status{};
  constexpr size_t kFreedPerCall = 64;  // by atomics, each of which waits for the RNIC
  std::vector<SlotOffset> found;        // free_record() suspends and a visitor cannot
  const auto free_now = [&](SlotOffset slot, const SlabArena::Slab&, const RecordHeader& header) {
    if (header.table != raw(table) || reservation(slot)) return true;
    const auto hash = hash_of_indexed(slot, table);
    if (!hash) return true;
    if (changer != nullptr) {
      found.push_back(slot);
      return found.size() < kFreedPerCall;
    }
    unindex_freed(slot, *hash);
    words_.store(slot, LockWord::unlocked(words_.load(slot).version() + 1));
    arena_.free_slot(slot);
    return true;
  };
  const uint64_t next = visit_slots(cursor.position, free_now);
  for (const SlotOffset slot : found) {
    PMSTORE_CO_TRY_STATUS(co_await free_record(*changer, slot, table, cursor));
  }
  cursor.position = next;
  if (next != 0) co_return Status{};
  cursor.done = !cursor.met_lock;
  cursor.met_lock = false;
  co_return Status{};
}

}  // namespace pmstore::internal
