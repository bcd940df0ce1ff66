#include "pmstore/shard/table_drop.h"

#include <vector>

#include "base/check.h"

namespace pmstore::internal {

Status TableDrop::drop(TableId table) {
  if (latch_.failed()) return latch_.error();
  // A start could not lock their writes again.
  if (cpu_.has_held_in(table)) {
    return make_error(ErrorCode::kBackPressure,
                      "transactions of several servers that write to this table are not decided; "
                      "settle them, then drop it");
  }
  const Status dropped = records_.catalog().drop_table(table);
  if (!dropped) latch_.set();
  if (dropped) unfinished_.insert(table);
  if (dropped && is_ordered(table)) records_.index().leave_ordered(table);
  return dropped;
}

// A freed slot's word has the version above its record's: a client that remembers the slot does not
// take what lies there for the record any more, and cannot lock it.
void TableDrop::free_by_cpu(SlotOffset slot, const IndexKey& key) {
  const LockWord word = records_.words().load(slot);
  PMSTORE_CHECK(!word.is_locked(), "no transaction that writes to a dropped table is prepared");
  records_.index().remove_alone(key, slot);
  records_.words().store(slot, LockWord::unlocked(word.version() + 1));
  records_.free_slot(slot);
}

base::Task<Status> TableDrop::free_by_rnic(WordChanger& changer, SlotOffset slot, TableId table,
                                           Cursor& cursor) {
  const LockWord word = records_.words().load(slot);
  if (word.is_locked()) {
    // By a commit, which unlocks it, or by a client that is gone, whose locks are resolved.
    cursor.met_lock = true;
    co_return Status{};
  }
  // Only this locks for the server: so, if the answer is lost, it can be asked for again.
  const LockWord locked = LockWord::locked(word.version(), kServerOwner);
  PMSTORE_CO_TRY(const bool mine, co_await changer.compare_swap(slot, word, locked));
  if (!mine) {
    cursor.met_lock = true;
    co_return Status{};
  }
  // Read again behind the lock: what was committed there before is what is freed.
  TableScan::KeyRoom room;
  const auto key = TableScan(records_).indexed_key(slot, table, room);
  if (key) records_.index().remove_alone(*key, slot);
  const LockWord gone = LockWord::unlocked(word.version() + (key ? 1 : 0));
  PMSTORE_CO_TRY(const bool unlocked, co_await changer.compare_swap(slot, locked, gone));
  // Else the slot is not used again before the next start, as where RnicCommit::reserve() fails.
  if (unlocked && key) records_.arena().free_slot(slot);
  co_return Status{};
}

base::Task<Status> TableDrop::free_slots(WordChanger* changer, TableId table, Cursor& cursor) {
  PMSTORE_CHECK(!records_.catalog().exists(table), "only slots of a dropped table are freed");
  // A write that was under way at the drop ends first: it may still be logged, and is then put in
  // place behind the cursor. New ones are refused.
  const bool written = records_.reservations().any_in(table) || cpu_.has_prepared_in(table);
  if (cursor.position == 0 && written) co_return Status{};
  constexpr size_t kFreedByAtomics = 64;  // each of them waits for the RNIC
  size_t freed = 0;
  std::vector<SlotOffset> found;  // free_by_rnic() suspends and a visitor cannot
  const TableScan scan(records_);
  const auto free_now = [&](SlotOffset slot, const SlabArena::Slab&, const RecordHeader& header) {
    if (header.table != raw(table) || records_.reservations().at(slot)) return true;
    TableScan::KeyRoom room;
    const auto key = scan.indexed_key(slot, table, room);
    if (!key) return true;
    if (changer == nullptr) {
      free_by_cpu(slot, *key);
      return ++freed < kFreedPerCall;
    }
    found.push_back(slot);
    return found.size() < kFreedByAtomics;
  };
  const uint64_t next = scan.visit(cursor.position, free_now);
  for (const SlotOffset slot : found) {
    PMSTORE_CO_TRY_STATUS(co_await free_by_rnic(*changer, slot, table, cursor));
  }
  cursor.position = next;
  if (next != 0) co_return Status{};
  cursor.done = !cursor.met_lock;
  if (cursor.done && is_ordered(table)) records_.index().forget_ordered(table);
  if (cursor.done) unfinished_.erase(table);
  cursor.met_lock = false;
  co_return Status{};
}

}  // namespace pmstore::internal
