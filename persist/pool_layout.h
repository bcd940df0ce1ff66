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
  // PaddingRules::off_bits() of the pool, 0 in pools from before it was kept; and kExtentsComeBack.
  uint32_t padding_off;
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

// In PoolHeader::padding_off: entries may be free again, and there are extents of kind kShardLog.
// Programs from before refuse such a pool for a rule that they do not know. Pools that were made
// before lack the bit, and are as good.
inline constexpr uint32_t kExtentsComeBack = 0x100;

// `tag` is written last, as one word, when the rest and the extent's content are durable. Its low
// half is kind | generation << 8, its high half CRC32C of {index, low half, the rest}. A tag of 0
// means that the entry was never used; entries are used for the first time in order. An extent is
// freed by one store of a tag of kind 0, whose generation is one higher and whose checksum covers
// {index, low half} only: the rest has no meaning then, and the next extent's can be written there.
// The entry's next extent has that generation.
struct ExtentEntry {
  uint64_t tag;
  uint64_t offset;  // in the pool; a multiple of 256
  uint64_t bytes;   // a multiple of 256
  uint64_t
      allocation;  // offset of the libpmemobj object that the extent lies in; 0 in a plain region
};
static_assert(sizeof(ExtentEntry) == 32);
static_assert(offsetof(ExtentEntry, offset) == 8);
static_assert(offsetof(ExtentEntry, bytes) == 16);
static_assert(offsetof(ExtentEntry, allocation) == 24);

// An entry of this generation is free for ever.
inline constexpr uint32_t kLastGeneration = (uint32_t{1} << 24) - 1;

inline constexpr uint64_t kPoolTableBytes = kMaxExtents * sizeof(ExtentEntry);
inline constexpr uint64_t kPoolLayoutBytes = sizeof(PoolHeader) + kPoolTableBytes + kRootBytes;
static_assert((sizeof(PoolHeader) + kPoolTableBytes) % 256 == 0, "the root area is 256-aligned");

}  // namespace pmstore::persist
