#include "pmstore/space_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "base/size_text.h"
#include "persist/kept_space_rules.h"
#include "persist/space_layout.h"
#include "pmstore/layout/catalog_layout.h"
#include "pmstore/server.h"
#include "pmstore/shard/table_catalog.h"

namespace pmstore {
namespace {

using persist::ExtentKind;
using persist::SpaceRules;

// The rules lie between the catalog's header and its table entries.
static_assert(persist::kSpaceOffset >= 2 * internal::kCatalogCopyBytes &&
              persist::kSpaceOffset + 2 * persist::kSpaceCopyBytes <=
                  internal::kTableEntriesOffset);

}  // namespace

Status check_space_rules(persist::Pool& pool, const SpaceRules& rules) {
  PMSTORE_TRY_STATUS(rules.check(pool.info().bytes));
  const uint64_t reserved = rules.of(ExtentKind::kRings).reserve_bytes;
  if (reserved == 0) return {};
  PMSTORE_TRY(const auto catalog, internal::TableCatalog::load(pool));
  const uint64_t most = catalog.most_rings_bytes();
  if (reserved <= most) return {};
  const std::string what = base::size_text(reserved) + " of the pool would be reserved for rings, ";
  if (most == 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      what +
                          "which take none: the pool has no rings, or they were made with it: "
                          "give --ring-reserve 0");
  }
  return make_error(
      ErrorCode::kInvalidArgument,
      fmt::format("{}which take at most {} ({} rings of {}): give a lower --ring-reserve, or make "
                  "a pool with more or larger rings (pmstore pool create --rings, --ring-bytes)",
                  what, base::size_text(most), catalog.header().ring_count,
                  base::size_text(catalog.header().ring_bytes)));
}

Status keep_space_rules(persist::Pool& pool, const SpaceRules& rules) {
  PMSTORE_TRY_STATUS(check_space_rules(pool, rules));
  return persist::write_space_rules(pool, rules);
}

Result<std::optional<std::string>> excess_ring_reserve(persist::Pool& pool) {
  PMSTORE_TRY(const SpaceRules rules, load_space_rules(pool));
  const uint64_t reserved = rules.of(ExtentKind::kRings).reserve_bytes;
  if (reserved == 0) return std::optional<std::string>();
  PMSTORE_TRY(const auto catalog, internal::TableCatalog::load(pool));
  const uint64_t most = catalog.most_rings_bytes();
  if (reserved <= most) return std::optional<std::string>();
  return std::optional(
      fmt::format("the pool keeps a reserve of {} for rings, which take at most {}: only that is "
                  "reserved; set it anew (pmstore pool limit --ring-reserve {})",
                  base::size_text(reserved), base::size_text(most), most));
}

Result<SpaceRules> space_rules_of_run(persist::Pool& pool, const ServerOptions& options) {
  PMSTORE_TRY(SpaceRules rules, load_space_rules(pool));
  // So that the pool can be started, and mended when that suits its users.
  uint64_t& of_rings = rules.of(ExtentKind::kRings).reserve_bytes;
  if (of_rings > 0) {
    PMSTORE_TRY(const auto catalog, internal::TableCatalog::load(pool));
    of_rings = std::min(of_rings, catalog.most_rings_bytes());
  }
  const auto replace = [&](ExtentKind kind, std::optional<uint64_t> reserve,
                           std::optional<uint64_t> limit) {
    if (reserve) rules.of(kind).reserve_bytes = *reserve;
    if (limit) rules.of(kind).limit_bytes = *limit;
  };
  replace(ExtentKind::kRecords, options.record_reserve_bytes, options.most_record_bytes);
  replace(ExtentKind::kRings, options.ring_reserve_bytes, std::nullopt);
  replace(ExtentKind::kLog, options.log_reserve_bytes, options.most_log_bytes);
  replace(ExtentKind::kFileData, options.file_reserve_bytes, options.most_file_bytes);
  PMSTORE_TRY_STATUS(check_space_rules(pool, rules));
  return rules;
}

}  // namespace pmstore
