// What a pool looks like on the medium; docs/pool.md explains it. Little endian, no pointers.
//
//   PoolHeader | ExtentEntry[kMaxExtents] | the owner's root area, kRootBytes
//
// The whole starts at an offset in the pool that is a multiple of 256: in a plain region at 0, in a
// libpmemobj pool at the root object, rounded up.
#pragma once

#include <cstddef>
#include <cstdint>

#include "persist/pool.h"

namespace pmstore::persist {

inline constexpr uint64_t kPoolMagic = 0x4c4f4f5054534d50;  // "PMSTPOOL"
inline constexpr uint32_t kPoolFormatVersion = 1;
// libpmemobj compares this, so that even a program which knows nothing of PoolHeader refuses a pool
// of another version. The number is kPoolFormatVersion.
inline constexpr char kPoolLayoutName[] = "pmstore.1";
inline constexpr char kPoolLayoutPrefix[] = "pmstore.";

// Written once, when the pool is made.
struct PoolHeader {
  uint64_t magic;
  uint32_t format_version;
  uint32_t crc;         // CRC32C of this struct with crc = 0
  uint64_t pool_bytes;  // of the whole mapping
  uint64_t table_offset;
  uint64_t root_offset;
  uint64_t root_bytes;
  uint32_t max_extents;
  uint32_t padding_off;  // PaddingRules::off_bits() of the pool; 0 in pools from before it was kept
  uint64_t reserved[25];
};
static_assert(sizeof(PoolHeader) == 256);
static_assert(offsetof(PoolHeader, format_version) == 8);
static_assert(offsetof(PoolHeader, crc) == 12);
static_assert(offsetof(PoolHeader, pool_bytes) == 16);
static_assert(offsetof(PoolHeader, table_offset) == 24);
static_assert(offsetof(PoolHeader, root_offset) == 32);
static_assert(offsetof(PoolHeader, root_bytes) == 40);
static_assert(offsetof(PoolHeader, max_extents) == 48);
static_assert(offsetof(PoolHeader, padding_off) == 52);

// `tag` is written last, as one word, when the rest and the extent's zeroes are durable: 0 means
// unused, whatever the rest says. Entries are used in order and never freed.
struct ExtentEntry {
  uint64_t tag;  // ExtentKind in the low half, CRC32C of {index, kind, the rest} in the high half
  uint64_t offset;  // in the pool; a multiple of 256
  uint64_t bytes;   // a multiple of 256
  uint64_t
      allocation;  // offset of the libpmemobj object that the extent lies in; 0 in a plain region
};
static_assert(sizeof(ExtentEntry) == 32);
static_assert(offsetof(ExtentEntry, offset) == 8);
static_assert(offsetof(ExtentEntry, bytes) == 16);
static_assert(offsetof(ExtentEntry, allocation) == 24);

inline constexpr uint64_t kPoolTableBytes = kMaxExtents * sizeof(ExtentEntry);
inline constexpr uint64_t kPoolLayoutBytes = sizeof(PoolHeader) + kPoolTableBytes + kRootBytes;
static_assert((sizeof(PoolHeader) + kPoolTableBytes) % 256 == 0, "the root area is 256-aligned");

}  // namespace pmstore::persist
