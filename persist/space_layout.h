// What a pool keeps of its reserves and limits, in its root area. The area is the owner's, but for
// these bytes; the owner asserts that (pmstore/shard/space_rules.cc). docs/pool.md describes it.
//
//   root = ... | SpaceHeader copy 0 at 512, copy 1 at 768 | ...
// Both copies are zero in a pool that keeps no rules; programs from before the header do not look
// at it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pmstore::persist {

inline constexpr uint32_t kSpaceMagic = 0x52534d50;  // "PMSR"
inline constexpr uint64_t kSpaceOffset = 512;        // in the root area
inline constexpr uint64_t kSpaceCopyBytes = 256;

struct KeptSpaceRule {
  uint64_t reserve_bytes;
  uint64_t limit_bytes;  // UINT64_MAX: none
};

struct SpaceHeader {
  uint32_t magic;
  uint32_t crc;  // of everything after this field; its seed is kSpaceMagic
  uint64_t generation;
  KeptSpaceRule records;
  KeptSpaceRule rings;
  KeptSpaceRule logs;
  KeptSpaceRule file_data;
  uint64_t reserved[6];  // zero
};
static_assert(sizeof(SpaceHeader) == 128 && sizeof(SpaceHeader) <= kSpaceCopyBytes &&
              offsetof(SpaceHeader, generation) == 8 && offsetof(SpaceHeader, records) == 16 &&
              offsetof(SpaceHeader, file_data) == 64);

}  // namespace pmstore::persist
