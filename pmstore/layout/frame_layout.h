// The persistent layout of slot space: numbers of slots, cut in frames, and the extents behind
// them.
//
// A slot's number (SlotOffset) is an offset in slot space. Slot space is cut in frames of equal
// size, a power of two of chunks. The first frames are the records that were made with the pool:
// CatalogHeader says where they lie. Each later frame is one extent of records, which is taken when
// the records need room:
//
//   extent = FrameHeader, FrameProgress at 64, nothing to kFrameHeaderBytes | chunk, chunk, ...
//
// Both are written before the extent is published, so every such extent has them. An extent may be
// smaller than its frame; its last chunk is never the frame's last one, so that no run of chunks
// crosses from one extent to the next.
//
// The space may have been anything before, and is not zeroed. So a chunk has a slab header, or a
// blank one, only if its number in the frame is below FrameProgress; the others were never used.
// Frames that an earlier release has taken are zeroed, with kZeroedFrameMagic and without
// FrameProgress. A program of such a release refuses a pool with others.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "pmstore/layout/slab_layout.h"

namespace pmstore::internal {

inline constexpr uint32_t kFrameMagic = 0x46554d50;        // "PMUF"
inline constexpr uint32_t kZeroedFrameMagic = 0x52464d50;  // "PMFR"
inline constexpr uint64_t kFrameHeaderBytes = 256;
// A pool has at most so many frames. The extent table has 64 entries: rings, logs and files need
// some, too.
inline constexpr uint32_t kMostFrames = 40;
inline constexpr uint64_t kLeastFrameBytes = 4 << 20;
// An extent of libpmemobj is below 16 GiB, and the free lists number slots of 64 bytes with 32
// bits.
inline constexpr uint64_t kMostFrameBytes = uint64_t{4} << 30;

struct FrameHeader {
  uint32_t magic;
  uint32_t crc;    // of everything after this field
  uint64_t pool;   // the pool's identity
  uint32_t frame;  // its number in slot space
  uint32_t chunks;
  uint64_t base_version;  // every version in it is higher, whatever its slots' earlier extents had
  uint64_t reserved[4];
};
static_assert(sizeof(FrameHeader) == 64 && offsetof(FrameHeader, base_version) == 24);

// In a line of its own: one 8-byte store changes it, so it is never torn.
inline constexpr uint64_t kFrameProgressOffset = 64;
struct FrameProgress {
  uint32_t crc;     // of what follows, seeded with the checksum of the frame's header
  uint32_t chunks;  // of the frame, from its first one on
};
static_assert(sizeof(FrameProgress) == 8);

// FrameProgress rises by so many chunks: 1 MiB, or a quarter of a smaller frame.
constexpr uint32_t frame_progress_step(uint64_t frame_bytes) {
  return static_cast<uint32_t>(std::clamp<uint64_t>(frame_bytes / kChunkBytes / 4, 1, 16));
}

// Of a pool of that size, unless it is made with another one: between a 32nd and a 16th of it.
constexpr uint32_t usual_frame_chunks(uint64_t pool_bytes) {
  const uint64_t bytes =
      std::clamp(std::bit_ceil(pool_bytes / 32), kLeastFrameBytes, kMostFrameBytes);
  return static_cast<uint32_t>(bytes / kChunkBytes);
}
// So many frames has slot space. Some more than fill the pool, because the last pieces of free
// space may be smaller than a frame.
constexpr uint32_t frames_of(uint64_t pool_bytes, uint64_t frame_bytes) {
  constexpr uint64_t kSmaller = 3;
  const uint64_t full = (pool_bytes + frame_bytes - 1) / frame_bytes;
  return static_cast<uint32_t>(std::min<uint64_t>(full + kSmaller, kMostFrames));
}

}  // namespace pmstore::internal
