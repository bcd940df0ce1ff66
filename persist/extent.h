// Extent: memory of one kind that a pool has (persist/pool.h). Threads: values, no sharing.
#pragma once

#include <cstdint>
#include <string_view>

namespace pmstore::persist {

// What an extent is for; the numbers are persistent. 0 marks an unused entry.
enum class ExtentKind : uint32_t {
  kUnused = 0,
  kRecords = 1,
  kRings = 2,  // of clients; in pools of earlier releases the shard log lies behind them
  kLog = 3,
  kFileData = 4,
  kShardLog = 5,
  kCheckpoint = 6,
};

std::string_view extent_name(ExtentKind kind);

struct Extent {
  ExtentKind kind;
  uint64_t offset;  // in Pool::memory(); aligned to 256
  uint64_t bytes;   // a multiple of 256
  // Its entry in the extent table, and how many extents that entry has had before. No two extents
  // that a pool ever has agree in both, also where they lie at the same offset.
  uint32_t entry = 0;
  uint32_t generation = 0;
};

}  // namespace pmstore::persist
