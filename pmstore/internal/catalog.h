// Catalog: what a pool is divided into, and which tables it has
// (pmstore/internal/catalog_layout.h).
//
// Threads: one. Everything that changes is durable on return.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "persist/pool.h"
#include "pmstore/client.h"
#include "pmstore/internal/catalog_layout.h"
#include "pmstore/server.h"

namespace pmstore::internal {

class Catalog {
 public:
  static Status format(persist::Pool& pool, const FormatOptions& options);
  // Reads and checks, changes nothing. BadPool when there is none or it is damaged.
  static Result<Catalog> load(persist::Pool& pool);

  const CatalogHeader& header() const { return header_; }
  // Is no table lost for certain? Not when a copy of the header is damaged, which may have counted
  // more of them, and not in pools from before they were counted.
  bool counts_all_tables() const {
    return both_copies_ && header_.table_count > 0 && header_.table_count == tables_.size();
  }
  uint64_t ring_offset(uint32_t ring) const {
    return header_.rings_offset + ring * header_.ring_bytes;
  }
  // Seeds the checksums of ring `ring`.
  uint32_t ring_salt(uint32_t ring) const;

  const std::vector<TableInfo>& tables() const { return tables_; }
  std::optional<TableId> find(std::string_view name) const;
  bool exists(TableId table) const { return raw(table) >= 1 && raw(table) <= tables_.size(); }
  // InvalidArgument for a name of no or too many bytes; Full at kMaxTables.
  Result<TableId> create_table(std::string_view name);

  // A new epoch, not clean; then serving may begin.
  Status begin_epoch();
  Status mark_clean();

 private:
  explicit Catalog(persist::Pool& pool) : pool_(&pool) {}
  Status load_tables();
  Status write_header();
  persist::Pool* pool_;
  CatalogHeader header_{};
  bool both_copies_ = false;
  std::vector<TableInfo> tables_;
};

// BadPool: there are records of a table that the catalog does not have any more.
Error table_is_lost(const std::string& path, uint16_t table);

}  // namespace pmstore::internal
