#include "pmstore/convert.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "pmstore/layout/earlier_redo.h"
#include "pmstore/shard/record_store.h"
#include "pmstore/shard/session_numbers.h"
#include "pmstore/shard/slot_reader.h"
#include "pmstore/shard/table_catalog.h"
#include "pmstore/shard/written_slots.h"

namespace pmstore {

namespace {

using internal::TableCatalog;

// The log gets a quarter of the rings. Two at least, where there are so many: then no transaction
// that a ring could hold is too large for it.
uint32_t rings_for_log(uint32_t rings) {
  constexpr uint32_t kShare = 4;
  return std::min(rings, std::max(rings / kShare, 2u));
}

// The rings of a pool whose redo records have their earlier format.
class EarlierRings {
 public:
  explicit EarlierRings(internal::RecordStore& records)
      : records_(records), slots_(records.arena(), records.catalog()) {}

  // Puts in place what the rings hold; durable on return.
  Result<persist::Persisted> put_in_place() {
    PMSTORE_TRY(const auto places, records_.catalog().ring_places());
    for (const TableCatalog::RingPlace& place : places) {
      PMSTORE_TRY(auto ring, records_.catalog().open_ring(place));
      PMSTORE_TRY_STATUS(ring.walk([](const log::EntryView&) {}));
      // An entry may be in the CPU's caches only: what goes in place is durable before.
      PMSTORE_TRY_STATUS(ring.make_walked_durable());
      ring.for_each_entry([&](const log::EntryView& entry) { replay(entry); });
      rings_.push_back(std::move(ring));
    }
    written_.flush(records_);
    return records_.memory().drain();
  }
  // Durable on return. The outcomes of the transactions that leave are not known from here on.
  Status empty(persist::Persisted in_place) {
    for (log::Ring& ring : rings_) {
      if (ring.position().start_lsn == ring.position().tail_lsn) continue;
      uint64_t expired_below = ring.expired_below_sequence();
      ring.for_each_entry([&](const log::EntryView& entry) {
        expired_below = std::max(expired_below, entry.sequence + 1);
      });
      PMSTORE_TRY_STATUS(ring.truncate(in_place, ring.position().tail_lsn, expired_below));
    }
    return {};
  }
  uint32_t last_session() const {
    uint32_t last = 0;
    for (const log::Ring& ring : rings_) last = std::max(last, ring.position().incarnation);
    return last;
  }

 private:
  void replay(const log::EntryView& entry) {
    // A client can write an entry that is no redo record: it is not a transaction.
    auto redo = EarlierRedoReader::open_whole(entry.payload, records_.catalog().header().pool);
    if (!redo) return;
    EarlierRedoReader noted = *redo;
    written_.note(records_.arena(), noted);
    while (const auto write = redo->next()) {
      if (slots_.must_apply(*write)) records_.write_in_place(write->slot, write->image);
    }
  }

  internal::RecordStore& records_;
  internal::SlotReader slots_;
  internal::WrittenSlots written_;
  std::vector<log::Ring> rings_;
};

// After it no redo record of an earlier format is left, and the pool has the present version. Where
// there was no shard log, the last rings are its room.
Result<TableCatalog> free_rings(persist::Pool& pool, TableCatalog catalog) {
  const internal::CatalogHeader header = catalog.header();
  PMSTORE_TRY(auto arena, internal::SlabArena::open(pool, header));
  PMSTORE_TRY_STATUS(arena.make_headers_durable());
  PMSTORE_TRY(auto words, internal::LockTable::create(arena.slot_space_bytes()));
  PMSTORE_TRY(auto index, internal::KeyIndex::create(arena.bytes()));
  internal::RecordStore records(pool, std::move(catalog), std::move(arena), std::move(words),
                                std::move(index));
  EarlierRings rings(records);
  PMSTORE_TRY(const persist::Persisted in_place, rings.put_in_place());
  const internal::SlotReader slots(records.arena(), records.catalog());
  if (const auto lost = slots.lost_table()) {
    return internal::table_is_lost(pool.info().path, *lost);
  }
  PMSTORE_TRY_STATUS(rings.empty(in_place));
  if (header.version >= internal::kFirstVersionWithLog) {
    PMSTORE_TRY_STATUS(records.catalog().raise_version(in_place));
    return std::move(records.catalog());
  }
  const uint32_t taken = rings_for_log(header.ring_count);
  PMSTORE_TRY_STATUS(records.catalog().begin_conversion(
      in_place, header.ring_count - taken, taken * header.ring_bytes, rings.last_session()));
  return std::move(records.catalog());
}

}  // namespace

Result<Conversion> convert_pool(persist::Pool& pool) {
  PMSTORE_TRY(TableCatalog catalog, TableCatalog::load_any(pool));
  Conversion conversion;
  conversion.from_version = catalog.header().version;
  conversion.rings_before = catalog.header().ring_count;
  conversion.to_version = internal::kCatalogVersion;
  if (catalog.header().version < internal::kFirstVersionWithLongKeys) {
    PMSTORE_TRY(catalog, free_rings(pool, std::move(catalog)));
  } else if (catalog.header().version < internal::kCatalogVersion) {
    // What rings and log hold has the present form, and stays there.
    PMSTORE_TRY(const persist::Persisted nothing, pool.memory().drain());
    PMSTORE_TRY_STATUS(catalog.raise_version(nothing));
  }
  if (catalog.is_earlier()) {
    // Nothing that was logged before is in this log, and what was in a ring is not known any more.
    PMSTORE_TRY_STATUS(catalog.make_found_durable());
    const uint64_t last = internal::first_sequence_of(catalog.header().sessions);
    PMSTORE_TRY_STATUS(catalog.format_log(last + kSessionSequences));
    PMSTORE_TRY_STATUS(catalog.end_conversion());
  }
  conversion.rings = catalog.header().ring_count;
  conversion.shard_log_bytes = catalog.header().log_bytes;
  return conversion;
}

}  // namespace pmstore
