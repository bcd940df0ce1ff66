// BucketCountHint: how many buckets a server's hash index has, as far as a session has seen. The
// index grows and shrinks without a word to its readers; each bucket that is READ says whether the
// hint was right, and in which bucket to look instead (pmstore/layout/bucket_layout.h).
//
// Threads: one.
#pragma once

#include <cstdint>
#include <optional>

#include "pmstore/layout/bucket_layout.h"

namespace pmstore::internal {

class BucketCountHint {
 public:
  // Buckets that one lookup may READ one after the other before it asks the server instead.
  static constexpr unsigned kMostHops = 8;

  void start(uint64_t bucket_count) { count_ = bucket_count; }
  uint64_t bucket_of(KeyHash hash) const { return hash.bucket(count_); }

  // `shape` was READ in `bucket`. Gives the bucket to look in instead; nullopt: the key's place is
  // this one, or the shape makes no sense. The bucket need not be stable: the next one is judged by
  // what it shows itself.
  std::optional<uint64_t> next(KeyHash hash, uint64_t bucket, BucketShape shape);

 private:
  uint64_t count_ = 1;
};

}  // namespace pmstore::internal
