// SpaceRules: reserves and limits of what the space of a pool is for.
//
// A reserve of a kind is a promise about free space: an extent of another kind is refused when the
// free space would then be less than the reserves that are not used up yet. A limit bounds what the
// extents of a kind have together; the kind's owner compares it (docs/pool.md). Neither takes back
// anything.
// Invariant: room() of one kind never takes what another kind's reserve lacks; only the first
// extent of rings does, because without rings clients cannot even delete. Threads: values, no
// sharing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"
#include "persist/extent.h"

namespace pmstore::persist {

struct SpaceRule {
  uint64_t reserve_bytes = 0;
  uint64_t limit_bytes = UINT64_MAX;  // none
  bool operator==(const SpaceRule&) const = default;
};

// What the rules are compared with: the extents of a pool, and for each piece of free space the
// largest extent that it has room for.
struct PoolSpace {
  std::span<const Extent> extents;
  std::span<const uint64_t> free_extents;
  uint64_t least_extent;  // as Pool::least_extent()
};

class SpaceRules {
 public:
  // The kinds that can have a reserve. A shard log is made with the pool; a checkpoint lies in the
  // pool only between two servers, so it may lie in space that is reserved.
  static constexpr std::array<ExtentKind, 4> kKinds = {ExtentKind::kRecords, ExtentKind::kRings,
                                                       ExtentKind::kLog, ExtentKind::kFileData};
  static bool has_rule(ExtentKind kind);

  // Requires has_rule() (CHECK).
  SpaceRule& of(ExtentKind kind);
  const SpaceRule& of(ExtentKind kind) const;
  bool operator==(const SpaceRules&) const = default;

  bool has_reserves() const;
  // Rings of clients are all freed when no client needs them. From here on, while there is no
  // extent of rings, other kinds leave so many bytes to the first one, in one piece, beside the
  // largest unused reserve; and reserves of others do not keep that one from being made. It is a
  // rule of one run: no pool keeps it. 0: the pool makes no extents of rings.
  void leave_first_rings(uint64_t bytes) { first_rings_bytes_ = bytes; }
  // InvalidArgument: the reserves are more than a pool of so many bytes together, or a limit is
  // below the reserve of its kind.
  Status check(uint64_t pool_bytes) const;

  // What the kind's extents lack to its reserve; 0 for a kind without a rule. Of rings, while there
  // are none: at least what the first ones take.
  uint64_t unused_reserve(ExtentKind kind, std::span<const Extent> extents) const;
  // The largest extent of that kind, a multiple of 256, that the reserves of other kinds leave room
  // for; 0: there is none. `kept_for_rings`: the first rings take at least so much. Behind every
  // extent up to that size, the pieces of free space have together what the unused reserves have,
  // and one piece has as much as the largest of them and the first rings, or as before. Of the
  // first extent of rings only the size is bounded: it takes what others have reserved. Requires
  // that an extent lies in the smallest piece that has room for it.
  uint64_t room(ExtentKind kind, const PoolSpace& space, uint64_t kept_for_rings = 0) const;
  // "4 MiB for rings, 1 GiB for log": the unused reserves of other kinds; empty: there is none.
  std::string reserved_for_others(ExtentKind kind, std::span<const Extent> extents) const;

 private:
  uint64_t room_beside_reserves(ExtentKind kind, const PoolSpace& space,
                                uint64_t kept_for_rings) const;
  // What is still left to the first extent of rings.
  uint64_t first_rings(std::span<const Extent> extents) const;
  std::array<SpaceRule, kKinds.size()> rules_{};
  uint64_t first_rings_bytes_ = 0;
};

// "record", "ring", "log" or "file": the kind in names of options. Requires has_rule() (CHECK).
std::string_view option_word(ExtentKind kind);

}  // namespace pmstore::persist
