// The persistent layout of the records extent: chunks of 64 KiB, runs of chunks that are slabs.
//
// A slab is one chunk, or a run of chunks with one slot for records that do not fit into a chunk.
// Its first 256 B hold two copies of a SlabHeader, which are written in turn, each within one line;
// its slots follow. A run that was never claimed is all zero.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pmstore/layout/size_class.h"

namespace pmstore::internal {

inline constexpr uint32_t kSlabMagic = 0x424c5350;  // "PSLB"
inline constexpr uint64_t kChunkBytes = 64 << 10;
inline constexpr uint64_t kSlabHeaderBytes = 256;
inline constexpr uint64_t kSlabCopyBytes = 64;
inline constexpr uint16_t kFreeRun = 0xffff;

struct SlabHeader {
  uint32_t magic;
  uint32_t crc;  // of everything after this field, seeded with the chunk's number
  uint64_t generation;
  uint64_t
      base_version;  // records at or below it are leftovers of an earlier use; new ones are above
  uint32_t run_chunks;
  uint16_t size_class;  // kFreeRun: the run is free
  uint16_t zero;
  uint64_t reserved[4];
};
static_assert(sizeof(SlabHeader) == 64 && offsetof(SlabHeader, base_version) == 16);

constexpr uint32_t run_chunks_of(uint8_t size_class) {
  return static_cast<uint32_t>((kSlabHeaderBytes + kSlotBytes[size_class] + kChunkBytes - 1) /
                               kChunkBytes);
}
constexpr uint32_t slots_per_slab(uint8_t size_class) {
  return static_cast<uint32_t>((run_chunks_of(size_class) * kChunkBytes - kSlabHeaderBytes) /
                               kSlotBytes[size_class]);
}

}  // namespace pmstore::internal
