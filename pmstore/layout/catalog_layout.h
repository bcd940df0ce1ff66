// The persistent layout of the store's catalog, in the pool's root area. docs/store.md describes
// it.
//
//   root = CatalogHeader copy A at 0, copy B at 256, table entries at 1024, 64 B each
// The header is written to the two copies in turn; the valid copy with the higher generation
// counts. The first kRootTableEntries table entries fill the root area; further entries follow the
// records that were made with the pool, in the same extent. Pools below 16 MiB and pools of version
// 1 have no further entries.
//
// A new entry is written behind the others, then the header counts it, and only then the table is
// used. So a counted entry whose checksum is wrong is damage. After a crash before the count, one
// whole entry or part of one may follow the counted ones; all others are zero. The first 8 bytes of
// an entry change with one 8-byte store, which is never torn. A table is dropped by storing a first
// word of kind kDroppedTable. The other bytes of a dropped entry have no meaning, so the name of
// the next table can be written there before its first word is stored.
//
// Records name their table by its id, also those that are left in free slots and redo rings after a
// drop. So an id is never used twice: the header has the highest id that was ever used.
//
// Version 1 had no dropped tables, and entry i had id i + 1. Versions 1 and 2 had no shard log, and
// at least one ring. Up to version 3 keys had at most 255 bytes, and rings had other redo records
// than the shard log (pmstore/layout/earlier_redo.h). Up to version 4 all rings that a pool could
// have were made with it, in one extent with the shard log; a pool that was converted keeps them
// there. Up to version 5 records had one extent, and the header ended behind `sessions`; a pool
// that was converted keeps this extent as its first frames (frame_layout.h). `pmstore pool convert`
// makes the present version of all of them (pmstore/convert.h). In all versions `crc` covers the
// same bytes, so that each release tells a header of a later one from a damaged one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "persist/pool.h"
#include "pmstore/layout/slab_layout.h"
#include "pmstore/types.h"

namespace pmstore::internal {

inline constexpr uint32_t kCatalogMagic = 0x54434d50;  // "PMCT"
inline constexpr uint32_t kCatalogVersion = 6;
inline constexpr uint32_t kOldestCatalogVersion = 1;
inline constexpr uint32_t kFirstVersionWithDrops = 2;
inline constexpr uint32_t kFirstVersionWithLog = 3;
inline constexpr uint32_t kFirstVersionWithLongKeys = 4;
inline constexpr uint32_t kFirstVersionWithRingExtents = 5;
inline constexpr uint32_t kFirstVersionWithFrames = 6;
inline constexpr uint32_t kMostRings = 4096;
// Feature bits. A pool with other ones is refused.
// The shard log is not formatted yet; only the rest of a conversion may follow.
inline constexpr uint32_t kConverting = 1;
inline constexpr uint64_t kCatalogCopyBytes = 256;
inline constexpr uint64_t kTableEntriesOffset = 1024;
inline constexpr uint64_t kTableEntryBytes = 64;
inline constexpr uint64_t kRootTableEntries =
    (persist::kRootBytes - kTableEntriesOffset) / kTableEntryBytes;
static_assert(kRootTableEntries == 1008);
inline constexpr uint64_t kMoreTablesBytes = (kMaxTables - kRootTableEntries) * kTableEntryBytes;
static_assert(kMoreTablesBytes == 3 * kChunkBytes);

struct CatalogHeader {
  uint32_t magic;
  uint32_t crc;  // of everything after this field through `sessions`
  uint32_t version;
  uint32_t ring_count;  // the most that there can be
  uint64_t generation;
  uint64_t pool;   // identity, random at creation
  uint64_t epoch;  // raised by each start of a server
  uint64_t ring_bytes;
  // Where ring_count rings are, one after the other; 0: they are in the pool's extents of rings,
  // each of which is full of them.
  uint64_t rings_offset;
  uint64_t records_offset;  // of the records that were made with the pool: slot space from 0 on
  uint64_t records_bytes;
  uint32_t clean;        // 1: closed in order, nothing to replay
  uint32_t table_count;  // at least so many entries are valid; pools made before it was kept have 0
  uint64_t tables_offset;   // of the entries behind those in the root
  uint64_t tables_bytes;    // 0: there is none
  uint32_t highest_table;   // no id above it was ever given to a table
  uint32_t tables_dropped;  // at most so many were; 0: a record of an unknown table is damage
  // From version 3 on; before, zero.
  uint64_t log_offset;  // of the shard log
  uint64_t log_bytes;
  uint32_t features;
  uint32_t sessions;  // no session was ever given a higher number
  // From version 6 on; before, the header ended here.
  uint32_t frame_chunks;   // of a frame of slot space; a power of two
  uint32_t more_crc;       // of frame_chunks, and of everything after this field; its seed is crc
  uint64_t freed_version;  // no slot of an extent that was freed had a higher version
  uint64_t reserved[6];
};
static_assert(sizeof(CatalogHeader) == 192 && sizeof(CatalogHeader) <= kCatalogCopyBytes &&
              offsetof(CatalogHeader, frame_chunks) == 128 && offsetof(CatalogHeader, pool) == 24 &&
              offsetof(CatalogHeader, clean) == 72 && offsetof(CatalogHeader, table_count) == 76 &&
              offsetof(CatalogHeader, tables_offset) == 80 &&
              offsetof(CatalogHeader, highest_table) == 96 &&
              offsetof(CatalogHeader, log_offset) == 104 &&
              offsetof(CatalogHeader, features) == 120);

// `crc` covers the header's first bytes, in every version.
inline constexpr size_t kCatalogCrcBytes = offsetof(CatalogHeader, frame_chunks);

enum class EntryKind : uint8_t { kTable = 1, kDroppedTable = 2 };

struct TableEntry {
  // Of everything after this field, in a dropped table's entry of the rest of the first 8 bytes
  // only; the pool's identity is its seed.
  uint32_t crc;
  uint16_t id;  // not 0
  EntryKind kind;
  uint8_t name_bytes;  // 0 when dropped
  char name[kMaxTableNameBytes + 1];
  uint64_t reserved;
};
static_assert(sizeof(TableEntry) == kTableEntryBytes && offsetof(TableEntry, name) == 8);

}  // namespace pmstore::internal
