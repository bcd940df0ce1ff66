// ZeroedRanges: which free space of a pool is known to be zero, because it was zeroed ahead of the
// extent that will lie there: durably, or with the next drain. Forgotten when the pool is closed.
//
// Invariants: ranges are in order and do not touch; there are kMost at most, and what is beyond is
// forgotten, which costs time only. Threads: one at a time.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "persist/internal/pmemobj_format.h"

namespace pmstore::persist::internal {

class ZeroedRanges {
 public:
  static constexpr size_t kMost = 64;

  // `range` is free, and zero; what is there is flushed.
  void add(ByteRange range);
  // Something may be stored there from here on.
  void remove(ByteRange range);
  // The first part of `range` that is not known to be zero. nullopt: all of it is.
  std::optional<ByteRange> first_unknown(ByteRange range) const;

 private:
  std::vector<ByteRange> ranges_;
};

}  // namespace pmstore::persist::internal
