// Store::open(): recovery of a pool. docs/recovery.md has the order and why.

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "pmstore/layout/record.h"
#include "pmstore/shard/store.h"

namespace pmstore::internal {

Result<std::unique_ptr<Store>> Store::open(persist::Pool& pool) {
  PMSTORE_TRY(TableCatalog catalog, TableCatalog::load(pool));
  const CatalogHeader& header = catalog.header();
  PMSTORE_TRY(SlabArena arena,
              SlabArena::open(pool.memory(), header.records_offset, header.records_bytes));
  PMSTORE_TRY_STATUS(arena.make_headers_durable());
  PMSTORE_TRY(LockTable words, LockTable::create(arena.bytes()));
  PMSTORE_TRY(Index index, Index::create(arena.bytes()));
  std::unique_ptr<Store> store(
      new Store(pool, std::move(catalog), std::move(arena), std::move(words), std::move(index)));
  // Rings before slabs: what a crash tore is whole again before anything looks at it.
  PMSTORE_TRY_STATUS(store->replay_rings());
  PMSTORE_TRY_STATUS(store->rebuild_index());
  PMSTORE_TRY_STATUS(store->catalog_.begin_epoch());
  return store;
}

Status Store::replay_rings() {
  const CatalogHeader& header = catalog_.header();
  rings_.reserve(header.ring_count);
  for (uint32_t i = 0; i < header.ring_count; ++i) {
    PMSTORE_TRY(auto ring, log::Ring::open(memory(), catalog_.ring_offset(i), header.ring_bytes,
                                           catalog_.ring_salt(i)));
    uint64_t entries = 0;
    PMSTORE_TRY_STATUS(ring.walk([&](const log::EntryView&) { ++entries; }));
    // An entry may be in the CPU's caches only. Before anything of it goes in place it is durable:
    // else a power cut could take it back and leave half of what it has written.
    PMSTORE_TRY_STATUS(ring.make_walked_durable());
    Status replayed;
    ring.for_each_entry([&](const log::EntryView& entry) {
      if (replayed) replayed = replay_entry(entry);
    });
    if (!replayed) return replayed;
    recovery_.rings_replayed += entries > 0 ? 1 : 0;
    recovery_.entries_read += entries;
    rings_.push_back(std::move(ring));
  }
  outcomes_.emplace(rings_.size());
  for (uint32_t i = 0; i < rings_.size(); ++i) {
    outcomes_->begin_session(i, rings_[i].expired_below_sequence());
  }
  return {};
}

Status Store::replay_entry(const log::EntryView& entry) {
  // With a right checksum but no redo record: nobody's transaction, from a client that writes its
  // own ring.
  if (!is_whole_redo(entry.payload, catalog_.header().pool)) {
    ++recovery_.foreign_entries;
    return {};
  }
  auto redo = RedoReader::open(entry.payload, catalog_.header().pool);
  const uint64_t applied_before = recovery_.records_applied;
  while (const auto write = redo->next()) {
    // An older use of the place: its slab was given back after the record was deleted.
    const auto slab = arena_.slab_at(write->slot);
    if (!slab || write->image.size() > kSlotBytes[slab->size_class] ||
        write->record.version() <= slab->base_version) {
      continue;
    }
    const std::span<const std::byte> place(arena_.at(write->slot), kSlotBytes[slab->size_class]);
    const auto present = check_record(place, write->slot);
    // A slot whose checksum fails counts as older than everything.
    if (present && present->version() >= write->record.version()) continue;
    write_record(write->slot, write->image);
    ++recovery_.records_applied;
  }
  recovery_.transactions_replayed += recovery_.records_applied > applied_before ? 1 : 0;
  return {};
}

Status Store::rebuild_index() {
  std::vector<SlotOffset> damaged;
  uint64_t highest = 0;
  uint16_t lost_table = 0;
  arena_.for_each_slab([&](const SlabArena::Slab& slab) {
    // Backwards, so that the lowest free slot is handed out first.
    for (uint32_t i = slots_per_slab(slab.size_class); i > 0; --i) {
      const SlotOffset slot = arena_.slot_of(slab, i - 1);
      const std::span<const std::byte> place(arena_.at(slot), kSlotBytes[slab.size_class]);
      if (never_written(place)) {
        arena_.free_slot(slot);
        continue;
      }
      const auto record = check_record(place, slot);
      if (!record || record->version() <= slab.base_version) {
        damaged.push_back(slot);
        continue;
      }
      highest = std::max(highest, record->version());
      words_.store(slot, LockWord::unlocked(record->version()));
      const auto table = static_cast<TableId>(record->header->table);
      if (record->live() && catalog_.was_dropped(table)) {
        // A client that has seen it may still know where: it must not find it there.
        words_.store(slot, LockWord::unlocked(record->version() + 1));
      }
      if (!record->live() || catalog_.was_dropped(table)) {
        ++recovery_.tombstones;
        arena_.free_slot(slot);
        continue;
      }
      if (!catalog_.exists(table)) {
        lost_table = raw(table);
        continue;
      }
      ++recovery_.live_records;
      const KeyHash hash = hash_key(table, record->key);
      const uint64_t bucket = index_.bucket_of(hash);
      index_.begin_change(bucket);
      index_.insert(hash, slab.size_class, slot);
      index_.end_change(bucket);
    }
  });
  // A table that is made later would get its id, and its records.
  if (lost_table != 0) return table_is_lost(pool_.info().path, lost_table);
  // Bad media: nobody knows what was there, so the slot stays unused, above every version there is.
  recovery_.damaged_records = damaged.size();
  for (const SlotOffset slot : damaged) {
    words_.store(slot, LockWord::unlocked(highest + 1));
    given_up_.insert(raw(slot));
  }
  return {};
}

}  // namespace pmstore::internal
