#include "pmstore/convert.h"

#include <algorithm>
#include <utility>

#include "pmstore/shard/client_rings.h"
#include "pmstore/shard/failure_latch.h"
#include "pmstore/shard/record_store.h"
#include "pmstore/shard/recovery.h"
#include "pmstore/shard/session_numbers.h"
#include "pmstore/shard/shard_log.h"
#include "pmstore/shard/table_catalog.h"

namespace pmstore {

namespace {

using internal::TableCatalog;

// The log gets a quarter of the rings. Two at least, where there are so many: then no transaction
// that a ring could hold is too large for it.
uint32_t rings_for_log(uint32_t rings) {
  constexpr uint32_t kShare = 4;
  return std::min(rings, std::max(rings / kShare, 2u));
}

// Puts in place what the rings hold. Then the last of them are given to the log.
Result<TableCatalog> free_rings(persist::Pool& pool, TableCatalog catalog) {
  const internal::CatalogHeader header = catalog.header();
  PMSTORE_TRY(auto arena, internal::SlabArena::open(pool.memory(), header.records_offset,
                                                    header.records_bytes));
  PMSTORE_TRY_STATUS(arena.make_headers_durable());
  PMSTORE_TRY(auto words, internal::LockTable::create(arena.bytes()));
  PMSTORE_TRY(auto index, internal::KeyIndex::create(arena.bytes()));
  internal::RecordStore records(pool, std::move(catalog), std::move(arena), std::move(words),
                                std::move(index));
  internal::FailureLatch latch(pool.memory());
  internal::ClientRings rings(records, latch);
  internal::Recovery recovery(records);
  PMSTORE_TRY_STATUS(recovery.replay_rings(rings));
  PMSTORE_TRY_STATUS(recovery.rebuild_index());
  PMSTORE_TRY_STATUS(rings.flush_in_place());
  PMSTORE_TRY(const persist::Persisted in_place, pool.memory().drain());
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
  if (catalog.header().version < internal::kFirstVersionWithLog) {
    PMSTORE_TRY(catalog, free_rings(pool, std::move(catalog)));
  }
  if (catalog.is_earlier()) {
    // Nothing that was logged before is in this log: its outcomes are in the rings that are left,
    // or not known any more.
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
