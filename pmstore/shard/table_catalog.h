// TableCatalog: where shard log, rings and records of a pool are, and which tables it has
// (pmstore/layout/catalog_layout.h).
//
// A pool is made without rings of clients. Each extent of rings is made when clients need more, and
// freed when nobody owns any of its rings; what the pool's extent table says is where rings are.
//
// Threads: one. The pool is borrowed. Every change is durable on return. After Io it may or may not
// be, and what is known here is as before; the owner makes no further change, because the medium
// may have half of that one.
#pragma once

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "log/ring.h"
#include "persist/pool.h"
#include "persist/two_copies.h"
#include "pmstore/client.h"
#include "pmstore/layout/catalog_layout.h"
#include "pmstore/server.h"

namespace pmstore::internal {

class TableCatalog {
 public:
  // Makes shard log, log area, records and tables in a new pool, and leaves room for its rings.
  // InvalidArgument; Full; Io. After a crash on the way the pool has no catalog.
  static Status format(persist::Pool& pool, const FormatOptions& options);
  // Reads and checks, changes nothing. BadPool when the pool has no catalog or it is damaged;
  // VersionMismatch when a later release has written it, or the pool must be converted first.
  static Result<TableCatalog> load(persist::Pool& pool);
  // The same, for convert_pool(): also of pools that must be converted.
  static Result<TableCatalog> load_any(persist::Pool& pool);

  const CatalogHeader& header() const { return header_; }
  const std::string& path() const { return pool_->info().path; }
  // Must be converted before a store can use the pool.
  bool is_earlier() const {
    return header_.version < kCatalogVersion || (header_.features & kConverting) != 0;
  }
  // True: no table is lost. False: a table may be lost, because one copy of the header is damaged
  // and may have counted more tables, or because the pool is older than the count.
  bool counts_all_tables() const {
    return both_copies_ && header_.table_count > 0 && header_.table_count == entries_.size();
  }
  // ---- rings of clients (catalog_rings.cc) ----
  struct RingPlace {
    uint64_t offset;
    uint32_t salt;  // seeds the ring's checksums; no two rings that a pool ever has share it
    std::optional<persist::Extent> extent;  // that it came with; nullopt: it came with the pool
  };
  // All rings that there are, in the order of their extents. BadPool.
  Result<std::vector<RingPlace>> ring_places() const;
  // Makes `count` rings in an extent of their own, owned by nobody. Durable on return: all of them
  // or none. Full; Io.
  Result<std::vector<RingPlace>> make_rings(uint32_t count) const;
  // persist::Pool::zero_ahead() of make_rings().
  Result<bool> zero_ahead_of_rings(uint32_t count, uint64_t most_bytes) const;
  // What records leave free in the pool, so that some client of lock discipline rnic can always
  // come, and delete some: an extent of rings, as long as there is none.
  uint64_t kept_for_rings() const;
  // What the first rings take; 0: they were made with the pool, or it has none.
  uint64_t first_rings_bytes() const;
  // What all extents of rings have at most.
  uint64_t most_rings_bytes() const;
  // So many at a time, so that an extent is not too small and extents are not too many.
  uint32_t rings_per_extent() const;
  // Errors of log::Ring::open(), whose walk() must follow.
  Result<log::Ring> open_ring(const RingPlace& place) const;

  uint32_t log_salt() const;
  // Opens the shard log; as open_ring().
  Result<log::Ring> open_log() const;
  // A new shard log, where the header says. All numbers below `expired_below_sequence` are unknown
  // to it. Durable on return. Io.
  Status format_log(uint64_t expired_below_sequence) const;

  const std::vector<TableInfo>& tables() const { return tables_; }
  std::optional<TableId> find(std::string_view name) const;
  bool exists(TableId table) const { return exists_[raw(table)]; }
  // The table existed and was dropped: records of it are free slots, not damage.
  bool was_dropped(TableId table) const {
    const uint32_t number = number_of(table);
    return header_.tables_dropped > 0 && number >= 1 && number <= header_.highest_table &&
           !exists(table);
  }
  // UnknownTable, for a table that does not exist: says whether it was dropped or never existed.
  Error unknown(TableId table) const;
  // So many tables may exist at the same time.
  size_t most_tables() const { return kRootTableEntries + header_.tables_bytes / kTableEntryBytes; }
  // Requires that no table has this name (CHECK). Errors of check_table_name(); Full when there are
  // most_tables(), and when all ids were used; Io.
  Result<TableId> create_table(std::string_view name, TableKind kind = TableKind::kHash);
  // Requires exists(table) (CHECK). The table does not exist any more. After Io it may exist or
  // not, and a restart may find it again. Its id is never used again.
  Status drop_table(TableId table);

  // Begins a new epoch and takes the clean mark away. Must precede everything that clients change.
  // The proof that the catalog is not clean.
  Result<persist::Persisted> begin_epoch();
  // There is nothing to replay: `in_place` proves that what log and rings hold is durable in place.
  // `last_session` is the highest number that a session was given.
  Status mark_clean(persist::Persisted in_place, uint32_t last_session);
  // Sessions up to this number may have been given out.
  Status count_sessions(uint32_t through);
  // No slot of an extent of records that is freed next had a version above `version`.
  Result<persist::Persisted> count_freed_version(uint64_t version);

  // ---- conversion ----
  // The pool has no shard log; what its rings held is durable in place, which `in_place`
  // proves. From here on it has the present version, `rings` of its rings, and room for the shard
  // log behind them, but is kConverting.
  Status begin_conversion(persist::Persisted in_place, uint32_t rings, uint64_t log_bytes,
                          uint32_t last_session);
  // The same of a pool that has a shard log: from here on it has the present version.
  Status raise_version(persist::Persisted in_place);
  // What load() has found may be in the CPU's caches only; durable on return. Precedes format_log()
  // in a pool that is kConverting: else a crash could bring back rings where the log is.
  Status make_found_durable();
  // The log is formatted: the pool is like any other.
  Status end_conversion();

 private:
  explicit TableCatalog(persist::Pool& pool) : pool_(&pool) {}
  // What format() needs: the extent of the shard log, and, until records have theirs, extents in
  // the place of those that rings can get later. Full.
  Result<std::vector<persist::Extent>> make_redo_room();
  // The rest of format(): the extent of the first records.
  Status make_first_records(const FormatOptions& options);
  // False: the shard log lies behind the first records, in their extent.
  bool has_log_extent() const { return header_.log_bytes >= pool_->least_extent(); }
  std::vector<RingPlace> places_in(const persist::Extent& extent) const;
  std::byte* entry_at(size_t position) const;
  Status load_tables();
  // False: the entry is damaged.
  bool load_table(const TableEntry& entry, size_t position);
  Status store_first_word(size_t position, const TableEntry& entry);
  Status reuse_entry(size_t position, const TableEntry& entry);
  persist::TwoCopies<CatalogHeader> header_copies() const;
  Status write_first_header();
  // `next` is header_ with what is changed.
  Status write_header(CatalogHeader next);
  // To both copies: else an earlier header counts when the later one is damaged.
  Status write_both_headers(const CatalogHeader& next);
  persist::Pool* pool_;
  CatalogHeader header_{};
  std::optional<persist::Persisted> header_durable_;  // since make_found_durable()
  bool both_copies_ = false;
  // Invariants: entries_ has the table of each entry that the header counts or will count next,
  // and TableId{} where a table was dropped; tables_ and exists_ have the same tables. No id is
  // above header_.highest_table.
  std::vector<TableId> entries_;
  std::vector<TableInfo> tables_;
  std::vector<bool> exists_ = std::vector<bool>(UINT16_MAX + 1);
};

// BadPool: the pool has records of a table that the catalog has lost.
Error table_is_lost(const std::string& path, uint16_t table);

}  // namespace pmstore::internal
