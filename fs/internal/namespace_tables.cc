#include "fs/internal/namespace_tables.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

namespace pmstore::fs::internal {
namespace {

struct Named {
  std::string_view name;
  TableId NamespaceTables::*id;
};
constexpr std::array<Named, 9> kTables{{{".fs.super", &NamespaceTables::super},
                                        {".fs.inodes", &NamespaceTables::inodes},
                                        {".fs.entries", &NamespaceTables::entries},
                                        {".fs.numbers", &NamespaceTables::numbers},
                                        {".fs.parents", &NamespaceTables::parents},
                                        {".fs.maps", &NamespaceTables::maps},
                                        {".fs.freed", &NamespaceTables::freed},
                                        {".fs.orphans", &NamespaceTables::orphans},
                                        {".fs.xattrs", &NamespaceTables::xattrs}}};

Task<Result<TableId>> open_ordered(Client& client, std::string_view name, bool create) {
  auto table = co_await client.open_table(name, false);
  if (!table && table.code() == ErrorCode::kUnknownTable && create) {
    table = co_await client.create_table(name, TableKind::kOrdered);
  }
  if (table && !is_ordered(*table)) {
    co_return make_error(ErrorCode::kDamaged,
                         fmt::format("table {} is a hash table, but file systems need an ordered "
                                     "one; drop it if it is not a file system's",
                                     name));
  }
  co_return std::move(table);
}

}  // namespace

Task<Result<NamespaceTables>> open_tables(Client& client, bool create) {
  NamespaceTables tables;
  for (const Named& table : kTables) {
    PMSTORE_CO_TRY(tables.*table.id, co_await open_ordered(client, table.name, create));
  }
  co_return tables;
}

}  // namespace pmstore::fs::internal
