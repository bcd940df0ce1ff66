// The persistent layout of the store's catalog, in the pool's root area. docs/store.md describes
// it.
//
//   root = CatalogHeader copy A at 0, copy B at 256, table entries at 1024, 64 B each
// The header is written to the copies in turn; the valid one with the higher generation counts. A
// table entry is written once, with one line, and counted in the header before the table is used:
// an entry that is counted and does not check is damage. Behind the counted ones there may be one
// more (a crash came before it was counted) or, in its place, part of one; all others are zero.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pmstore/types.h"

namespace pmstore::internal {

inline constexpr uint32_t kCatalogMagic = 0x54434d50;  // "PMCT"
inline constexpr uint32_t kCatalogVersion = 1;
inline constexpr uint64_t kCatalogCopyBytes = 256;
inline constexpr uint64_t kTableEntriesOffset = 1024;

struct CatalogHeader {
  uint32_t magic;
  uint32_t crc;  // of everything after this field
  uint32_t version;
  uint32_t ring_count;
  uint64_t generation;
  uint64_t pool;   // identity, random at creation
  uint64_t epoch;  // raised by each start of a server
  uint64_t ring_bytes;
  uint64_t rings_offset;  // of the rings' extent in the pool's memory
  uint64_t records_offset;
  uint64_t records_bytes;
  uint32_t clean;        // 1: closed in order, nothing to replay
  uint32_t table_count;  // at least so many entries are valid; pools made before it was kept have 0
  uint32_t reserved[12];
};
static_assert(sizeof(CatalogHeader) == 128 && offsetof(CatalogHeader, pool) == 24 &&
              offsetof(CatalogHeader, clean) == 72 && offsetof(CatalogHeader, table_count) == 76);

struct TableEntry {
  uint32_t crc;  // of everything after this field; the pool's identity is its seed
  uint16_t id;   // its place in the array + 1
  uint8_t kind;  // 1: hash table
  uint8_t name_bytes;
  char name[kMaxTableNameBytes + 1];
  uint64_t reserved;
};
static_assert(sizeof(TableEntry) == 64);

}  // namespace pmstore::internal
