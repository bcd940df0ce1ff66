// TableCatalog: what a pool is divided into, and which tables it has
// (pmstore/layout/catalog_layout.h).
//
// Threads: one. Everything that changes is durable on return.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "log/ring.h"
#include "persist/pool.h"
#include "persist/two_copies.h"
#include "pmstore/client.h"
#include "pmstore/layout/catalog_layout.h"
#include "pmstore/server.h"

namespace pmstore::internal {

class TableCatalog {
 public:
  static Status format(persist::Pool& pool, const FormatOptions& options);
  // Reads and checks, changes nothing. BadPool when there is none or it is damaged.
  static Result<TableCatalog> load(persist::Pool& pool);

  const CatalogHeader& header() const { return header_; }
  // Is no table lost for certain? Not when a copy of the header is damaged, which may have counted
  // more of them, and not in pools from before they were counted.
  bool counts_all_tables() const {
    return both_copies_ && header_.table_count > 0 && header_.table_count == places_.size();
  }
  uint64_t ring_offset(uint32_t ring) const {
    return header_.rings_offset + ring * header_.ring_bytes;
  }
  // Seeds the checksums of ring `ring`.
  uint32_t ring_salt(uint32_t ring) const;
  // Errors of log::Ring::open(), whose walk() must follow.
  Result<log::Ring> open_ring(uint32_t ring) const;

  const std::vector<TableInfo>& tables() const { return tables_; }
  std::optional<TableId> find(std::string_view name) const;
  bool exists(TableId table) const { return exists_[raw(table)]; }
  // There is no such table, but there was: its records are nobody's.
  bool was_dropped(TableId table) const {
    return header_.tables_dropped > 0 && raw(table) >= 1 && raw(table) <= header_.highest_table &&
           !exists(table);
  }
  // UnknownTable: the table was dropped, or there never was one.
  Error unknown(TableId table) const;
  // How many there may be at the same time.
  size_t most_tables() const { return kRootTableEntries + header_.tables_bytes / kTableEntryBytes; }
  // Requires that find(name) finds nothing. Errors of check_table_name(); Full at most_tables(),
  // and when all ids were used.
  Result<TableId> create_table(std::string_view name);
  // Requires exists(table). The table does not exist any more, also when it fails; then it may be
  // back after a crash. Its id is never used again.
  Status drop_table(TableId table);

  // A new epoch, not clean; then serving may begin.
  Status begin_epoch();
  // There is nothing to replay: `in_place` proves that what the rings hold is durable in place.
  Status mark_clean(persist::Persisted in_place);

 private:
  explicit TableCatalog(persist::Pool& pool) : pool_(&pool) {}
  std::byte* entry_at(size_t place) const;
  Status load_tables();
  // False: the entry is damaged.
  bool load_table(const TableEntry& entry, size_t place);
  Status store_first_word(size_t place, const TableEntry& entry);
  Status reuse_entry(size_t place, const TableEntry& entry);
  persist::TwoCopies<CatalogHeader> header_copies() const;
  Status write_header();
  persist::Pool* pool_;
  CatalogHeader header_{};
  std::optional<persist::Persisted> header_durable_;  // since begin_epoch()
  bool both_copies_ = false;
  // Invariants: places_ has one element for each entry that the header counts or will count next,
  // TableId{} where a table was dropped; tables_ and exists_ have the others. No id is above
  // header_.highest_table.
  std::vector<TableId> places_;
  std::vector<TableInfo> tables_;
  std::vector<bool> exists_ = std::vector<bool>(kMaxTableIds + 1);
};

// BadPool: there are records of a table that the catalog does not have any more.
Error table_is_lost(const std::string& path, uint16_t table);

}  // namespace pmstore::internal
