// The persistent layout of a checkpoint, in an extent of kind kCheckpoint. docs/checkpoint.md
// describes it.
//
//   extent = CheckpointHeader | sections | directory
//   section = blocks of kCheckpointBlockBytes, the last one shorter; begins at a multiple of 64
//   directory = CheckpointSection{sections} | a checksum for each block, in the order of sections
//
// The header is written last, when the rest is durable, and the extent is published after that. A
// checkpoint belongs to the one clean catalog header whose pool, epoch and generation it names.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pmstore::internal {

inline constexpr uint64_t kCheckpointMagic = 0x54504b43534d50;  // "PMSCKPT"
inline constexpr uint32_t kCheckpointVersion = 2;
inline constexpr uint64_t kCheckpointBlockBytes = 64 << 10;
inline constexpr uint64_t kCheckpointAlignment = 64;
inline constexpr size_t kSectionNameBytes = 12;

struct CheckpointHeader {
  uint64_t magic;
  uint32_t version;
  uint32_t crc;  // of everything after this field
  uint64_t pool;
  uint64_t epoch;
  uint64_t generation;        // of the clean catalog header
  uint64_t bytes;             // of the checkpoint, with this header and the directory
  uint64_t directory_offset;  // in the extent
  uint64_t directory_bytes;
  uint64_t directory_sum;  // XXH3-64, seeded as block_seed(generation, directory_offset)
  uint32_t sections;
  uint32_t zero;
  uint64_t reserved[22];
};
static_assert(sizeof(CheckpointHeader) == 256 && offsetof(CheckpointHeader, pool) == 16 &&
              offsetof(CheckpointHeader, directory_sum) == 64 &&
              offsetof(CheckpointHeader, sections) == 72);

struct CheckpointSection {
  char name[kSectionNameBytes];  // padded with zeros
  uint32_t part;
  uint64_t offset;  // in the extent
  uint64_t bytes;
};
static_assert(sizeof(CheckpointSection) == 32);

// A block that another checkpoint left at the same place has another seed, and so has one that lies
// elsewhere.
constexpr uint64_t block_seed(uint64_t generation, uint64_t offset) {
  return generation * 0x9e3779b97f4a7c15u ^ offset;
}

}  // namespace pmstore::internal
