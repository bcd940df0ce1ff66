#include "pmstore/client/bucket_count_hint.h"

#include <algorithm>

namespace pmstore::internal {

std::optional<uint64_t> BucketCountHint::next(KeyHash hash, uint64_t bucket, BucketShape shape) {
  if (!shape.in_use()) {
    if (bucket == 0) return std::nullopt;
    count_ = std::min(count_, bucket);
    return parent_bucket(bucket);
  }
  if (shape.holds(hash, bucket) || shape.depth() > kMostDepth) return std::nullopt;
  const uint64_t deeper = hash.bucket_of_depth(shape.depth());
  if (deeper == bucket) return std::nullopt;
  count_ = std::max(count_, deeper + 1);
  return deeper;
}

}  // namespace pmstore::internal
