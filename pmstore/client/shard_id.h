// ShardId: which partition of the keys, and which shard of it, holds a record.
#pragma once

#include <cstdint>

namespace pmstore::internal {

struct ShardId {
  uint32_t partition = 0;
  uint16_t shard = 0;
  bool operator==(const ShardId&) const = default;
};

}  // namespace pmstore::internal
