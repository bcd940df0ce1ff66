// The persistent layout of a pool's file area: sections, each an extent of kind kFileData.
// docs/files-data.md describes it.
//
//   first section = FileAreaHeader copies at 0 and 256 | zeros | units at units_offset
//   later section = AreaSectionHeader copies at 0 and 256 | zeros | units at units_offset
// FileAreaHeader is written to its copies in turn; the valid one with the higher generation counts.
// An AreaSectionHeader is part of its extent from the beginning, twice the same, and never changes.
// Units begin at a multiple of kUnitBytes in the pool's memory. What is in use is not recorded
// here: file maps and quarantine records of the namespace say it. Integers are little endian.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fs/types.h"

namespace pmstore::fs {

inline constexpr uint32_t kFileAreaMagic = 0x41444650;  // "PFDA"
// Areas of this version may have later sections. It is written before the first of these is made.
inline constexpr uint32_t kFileAreaVersion = 4;
// Areas of the versions before have one section. The first two are shorter: they end in front of
// FileAreaHeader::owner and owner_key. They are read, and become the next version when an owner is
// recorded.
inline constexpr uint32_t kFileAreaVersionOfOneSection = 3;
inline constexpr uint32_t kFileAreaVersionWithoutOwner = 1;
inline constexpr uint32_t kFileAreaVersionWithoutKey = 2;
inline constexpr uint64_t kFileAreaCopyStride = 256;
// In front of the units there is at least so much.
inline constexpr uint64_t kFileAreaHeaderBytes = 4096;

struct FileAreaHeader {
  uint32_t magic;
  uint32_t crc;  // CRC32C of everything after this field
  uint32_t version;
  uint32_t unit_bytes;  // kUnitBytes
  uint64_t generation;
  uint64_t identity;      // of the area, random
  uint64_t starts;        // so many times a server has opened it; generation words begin with it
  uint64_t units_offset;  // in the extent
  uint64_t units;
  uint64_t area_bytes;  // of the extent
  // From version 2 on: whose data the units hold, see fs/file_area.h.
  uint64_t owner;        // identity of a file system; 0: there is none, and all units are zero
  uint64_t owner_epoch;  // of that one's namespace server, the highest that has come
  uint16_t owner_index;  // of this area among its data servers; 0: its namespace is in this pool
  uint16_t reserved[3];
  uint64_t owner_start;  // AreaOwnerHello::start of that one; 0: it has said none
  // From version 3 on: the id of the owner's secret. 0: the owner has come without one so far.
  uint64_t owner_key[2];  // low and high bits
};
static_assert(sizeof(FileAreaHeader) == 112 && sizeof(FileAreaHeader) <= kFileAreaCopyStride);
static_assert(offsetof(FileAreaHeader, owner) == 64 &&
              offsetof(FileAreaHeader, owner_index) == 80 &&
              offsetof(FileAreaHeader, owner_key) == 96);
static_assert(offsetof(FileAreaHeader, generation) == 16 &&
              offsetof(FileAreaHeader, starts) == 32 &&
              offsetof(FileAreaHeader, units_offset) == 40 &&
              offsetof(FileAreaHeader, area_bytes) == 56);
static_assert(2 * kFileAreaCopyStride <= kFileAreaHeaderBytes);

inline constexpr uint32_t kAreaSectionMagic = 0x53444650;  // "PFDS"
inline constexpr uint32_t kAreaSectionVersion = 1;
// Units of later sections have numbers from a multiple of this on, and there is at least one number
// between two sections that is no unit's: a run of units lies in one section.
inline constexpr uint64_t kSectionNumbers = uint64_t{1} << 18;

struct AreaSectionHeader {
  uint32_t magic;
  uint32_t crc;  // CRC32C of everything after this field
  uint32_t version;
  uint32_t unit_bytes;    // kUnitBytes
  uint64_t area;          // FileAreaHeader::identity
  uint64_t first_unit;    // number of its first unit; the first section's is 0
  uint64_t units_offset;  // in the extent
  uint64_t units;
  uint64_t section_bytes;  // of the extent
  uint64_t reserved;       // 0
};
static_assert(sizeof(AreaSectionHeader) == 64 && sizeof(AreaSectionHeader) <= kFileAreaCopyStride);
static_assert(offsetof(AreaSectionHeader, area) == 16 &&
              offsetof(AreaSectionHeader, first_unit) == 24 &&
              offsetof(AreaSectionHeader, section_bytes) == 48);

}  // namespace pmstore::fs
