#include "persist/kept_space_rules.h"

#include <cstddef>
#include <span>
#include <string>

#include "base/check.h"
#include "base/checksum.h"
#include "persist/space_layout.h"
#include "persist/two_copies.h"

namespace pmstore::persist {
namespace {

TwoCopies<SpaceHeader> copies_in(Pool& pool) {
  Memory& memory = pool.memory();
  return {memory, memory.offset_of(pool.root().data()) + kSpaceOffset, kSpaceCopyBytes};
}

uint32_t checksum_of(const SpaceHeader& header) {
  const auto bytes = std::as_bytes(std::span(&header, 1));
  return base::crc32c(bytes.subspan(offsetof(SpaceHeader, generation)), kSpaceMagic);
}

bool is_valid(const SpaceHeader& header) {
  return header.magic == kSpaceMagic && header.crc == checksum_of(header);
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

Result<SpaceRules> load_space_rules(Pool& pool) {
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

Status write_space_rules(Pool& pool, const SpaceRules& rules) {
  PMSTORE_TRY_STATUS(rules.check(pool.info().bytes));
  const auto copies = copies_in(pool);
  const auto found = *copies.read(is_valid);
  SpaceHeader header{};
  header.magic = kSpaceMagic;
  for (const ExtentKind kind : SpaceRules::kKinds) {
    const SpaceRule& rule = rules.of(kind);
    rule_in(header, kind) = {rule.reserve_bytes, rule.limit_bytes};
  }
  // What was found may be in the CPU's caches only, if the process that wrote it has died.
  Memory& memory = pool.memory();
  memory.flush(pool.root().data() + kSpaceOffset, 2 * kSpaceCopyBytes);
  PMSTORE_TRY(Persisted newest, memory.drain());
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

}  // namespace pmstore::persist
