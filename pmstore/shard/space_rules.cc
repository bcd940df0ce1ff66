#include "pmstore/space_rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/checksum.h"
#include "base/size_text.h"
#include "persist/two_copies.h"
#include "pmstore/layout/space_layout.h"
#include "pmstore/server.h"
#include "pmstore/shard/table_catalog.h"

namespace pmstore {
namespace {

using internal::KeptSpaceRule;
using internal::SpaceHeader;
using persist::ExtentKind;
using persist::SpaceRules;

persist::TwoCopies<SpaceHeader> copies_in(persist::Pool& pool) {
  persist::Memory& memory = pool.memory();
  return {memory, memory.offset_of(pool.root().data()) + internal::kSpaceOffset,
          internal::kSpaceCopyBytes};
}

uint32_t checksum_of(const SpaceHeader& header) {
  const auto bytes = std::as_bytes(std::span(&header, 1));
  return base::crc32c(bytes.subspan(offsetof(SpaceHeader, generation)), internal::kSpaceMagic);
}

bool is_valid(const SpaceHeader& header) {
  return header.magic == internal::kSpaceMagic && header.crc == checksum_of(header);
}

KeptSpaceRule& rule_in(SpaceHeader& header, ExtentKind kind) {
  switch (kind) {
    case ExtentKind::kRecords: return header.records;
    case ExtentKind::kRings: return header.rings;
    case ExtentKind::kLog: return header.logs;
    default: PMSTORE_CHECK(kind == ExtentKind::kFileData, "no other kind has a rule");
  }
  return header.file_data;
}

}  // namespace

Result<SpaceRules> load_space_rules(persist::Pool& pool) {
  const auto copies = copies_in(pool);
  const auto found = *copies.read(is_valid);
  SpaceRules rules;
  if (!found) {
    // The first time that rules are kept writes one copy before the other: a crash tears one.
    if (copies.is_blank(0) || copies.is_blank(1)) return rules;
    return make_error(ErrorCode::kBadPool,
                      pool.info().path +
                          ": both copies of the reserves and limits that the pool keeps are "
                          "damaged: set them again (pmstore pool limit)");
  }
  SpaceHeader header = found->header;
  for (const ExtentKind kind : SpaceRules::kKinds) {
    const KeptSpaceRule& kept = rule_in(header, kind);
    rules.of(kind) = {kept.reserve_bytes, kept.limit_bytes};
  }
  return rules;
}

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
  const auto copies = copies_in(pool);
  const auto found = *copies.read(is_valid);
  SpaceHeader header{};
  header.magic = internal::kSpaceMagic;
  for (const ExtentKind kind : SpaceRules::kKinds) {
    const persist::SpaceRule& rule = rules.of(kind);
    rule_in(header, kind) = {rule.reserve_bytes, rule.limit_bytes};
  }
  // What was found may be in the CPU's caches only, if the process that wrote it has died.
  persist::Memory& memory = pool.memory();
  memory.flush(pool.root().data() + internal::kSpaceOffset, 2 * internal::kSpaceCopyBytes);
  PMSTORE_TRY(persist::Persisted newest, memory.drain());
  if (found) {
    header.generation = found->header.generation;
  } else {
    PMSTORE_TRY(newest, copies.write_first(header, checksum_of));
  }
  // Both, so that damage to one loses nothing.
  PMSTORE_TRY(newest, copies.write(newest, header, checksum_of));
  if (found) {
    PMSTORE_TRY(newest, copies.write(newest, header, checksum_of));
  }
  return {};
}

Result<SpaceRules> space_rules_of_run(persist::Pool& pool, const ServerOptions& options) {
  PMSTORE_TRY(SpaceRules rules, load_space_rules(pool));
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
