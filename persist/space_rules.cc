#include "persist/space_rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/size_text.h"
#include "persist/padding.h"

namespace pmstore::persist {
namespace {

// What the pieces of free space lose to an extent, beside its own bytes, at most: it takes whole
// chunks, and what is left of its piece may be too small for another extent.
uint64_t lost_beside_an_extent(uint64_t least_extent) { return least_extent + least_extent / 8; }

uint64_t bytes_of(ExtentKind kind, std::span<const Extent> extents) {
  uint64_t bytes = 0;
  for (const Extent& extent : extents) {
    if (extent.kind == kind) bytes += extent.bytes;
  }
  return bytes;
}

uint64_t below(uint64_t bytes, uint64_t less) { return bytes - std::min(bytes, less); }

size_t index_of(ExtentKind kind) {
  const auto* const found = std::find(SpaceRules::kKinds.begin(), SpaceRules::kKinds.end(), kind);
  PMSTORE_CHECK(found != SpaceRules::kKinds.end(), "the kind has a rule");
  return static_cast<size_t>(found - SpaceRules::kKinds.begin());
}

}  // namespace

std::string_view option_word(ExtentKind kind) {
  constexpr std::array<std::string_view, 4> kWords = {"record", "ring", "log", "file"};
  static_assert(kWords.size() == SpaceRules::kKinds.size());
  return kWords[index_of(kind)];
}

bool SpaceRules::has_rule(ExtentKind kind) {
  return std::find(kKinds.begin(), kKinds.end(), kind) != kKinds.end();
}

SpaceRule& SpaceRules::of(ExtentKind kind) { return rules_[index_of(kind)]; }
const SpaceRule& SpaceRules::of(ExtentKind kind) const { return rules_[index_of(kind)]; }

bool SpaceRules::has_reserves() const {
  return std::any_of(rules_.begin(), rules_.end(),
                     [](const SpaceRule& rule) { return rule.reserve_bytes > 0; });
}

Status SpaceRules::check(uint64_t pool_bytes) const {
  uint64_t left = pool_bytes;
  for (const ExtentKind kind : kKinds) {
    const SpaceRule& rule = of(kind);
    if (rule.limit_bytes < rule.reserve_bytes) {
      return make_error(
          ErrorCode::kInvalidArgument,
          fmt::format("{} bytes of the pool would be reserved for {}, which are limited to {}: "
                      "give a higher --{}-limit, or a lower --{}-reserve",
                      rule.reserve_bytes, extent_name(kind), rule.limit_bytes, option_word(kind),
                      option_word(kind)));
    }
    if (rule.reserve_bytes > left) {
      return make_error(
          ErrorCode::kInvalidArgument,
          fmt::format("the reserves are more than the pool together: {} are left of {} for {} of "
                      "{}: give lower reserves",
                      base::size_text(left), base::size_text(pool_bytes),
                      base::size_text(rule.reserve_bytes), extent_name(kind)));
    }
    left -= rule.reserve_bytes;
  }
  return {};
}

uint64_t SpaceRules::unused_reserve(ExtentKind kind, std::span<const Extent> extents) const {
  if (!has_rule(kind)) return 0;
  const uint64_t unused = below(of(kind).reserve_bytes, bytes_of(kind, extents));
  return kind == ExtentKind::kRings ? std::max(unused, first_rings(extents)) : unused;
}

uint64_t SpaceRules::first_rings(std::span<const Extent> extents) const {
  return bytes_of(ExtentKind::kRings, extents) > 0 ? 0 : first_rings_bytes_;
}

uint64_t SpaceRules::room(ExtentKind kind, const PoolSpace& space, uint64_t kept_for_rings) const {
  const uint64_t beside = room_beside_reserves(kind, space, kept_for_rings);
  if (kind != ExtentKind::kRings) return beside;
  uint64_t largest = 0;
  for (const uint64_t bytes : space.free_extents) largest = std::max(largest, bytes);
  const uint64_t first = round_down(first_rings(space.extents), kXpLineBytes);
  return std::max(beside, std::min(largest, first));
}

uint64_t SpaceRules::room_beside_reserves(ExtentKind kind, const PoolSpace& space,
                                          uint64_t kept_for_rings) const {
  uint64_t all = 0;
  uint64_t largest = 0;
  uint64_t second = 0;
  for (const uint64_t bytes : space.free_extents) {
    all += bytes;
    second = std::max(second, std::min(largest, bytes));
    largest = std::max(largest, bytes);
  }
  if (!has_rule(kind)) return largest;
  const uint64_t lost = lost_beside_an_extent(space.least_extent);
  uint64_t reserved = 0;  // for others
  uint64_t most_reserved = 0;
  // Rings themselves leave nothing to the first of them.
  const uint64_t first =
      kind == ExtentKind::kRings ? 0 : std::max(kept_for_rings, first_rings(space.extents));
  for (const ExtentKind other : kKinds) {
    if (other == kind) continue;
    uint64_t unused = unused_reserve(other, space.extents);
    if (other == ExtentKind::kRings) unused = std::max(unused, first);
    reserved += unused;
    most_reserved = std::max(most_reserved, unused);
    // That kind has all of its reserve in the piece, and leaves it to the first rings.
    if (first > 0 && unused > 0 && other != ExtentKind::kRings) {
      most_reserved = std::max(most_reserved, unused + first + lost);
    }
  }
  if (reserved == 0) return largest;
  // One piece stays so large. An extent that the second one has room for leaves the largest.
  const uint64_t whole = std::min(largest, most_reserved);
  const uint64_t in_a_piece =
      second >= whole ? largest : std::max(second, below(largest, whole + lost));
  const uint64_t room = round_down(std::min(in_a_piece, below(all, reserved + lost)), kXpLineBytes);
  PMSTORE_CHECK(room == 0 || all - room >= reserved + lost, "reserves of others stay free");
  // A smaller extent takes as much of the pool.
  return room < space.least_extent ? 0 : room;
}

std::string SpaceRules::reserved_for_others(ExtentKind kind,
                                            std::span<const Extent> extents) const {
  std::string text;
  // The room of the first rings is no reserve.
  if (!has_reserves()) return text;
  for (const ExtentKind other : kKinds) {
    const uint64_t unused = unused_reserve(other, extents);
    if (other == kind || unused == 0) continue;
    text += fmt::format("{}{} for {}", text.empty() ? "" : ", ", base::size_text(unused),
                        extent_name(other));
  }
  return text;
}

}  // namespace pmstore::persist
