// FreedBlocks: the blocks of a sparse file that lie in freed extents, until the file system has
// them back.
//
// Invariants: ranges_ is in order, without overlaps, and no extent lies in it. A pool whose blocks
// were reserved keeps them: nothing is noted then. Threads: one at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "persist/internal/pmemobj_format.h"

namespace pmstore::persist::internal {

class FreedBlocks {
 public:
  FreedBlocks() = default;
  // `fd` is borrowed. Nothing is noted where the file has all of its blocks, or is a device.
  explicit FreedBlocks(int fd);

  // An extent was in the range, and is durably gone.
  void add(ByteRange range);
  // An extent will be in the range: its blocks stay.
  void remove(ByteRange range);
  // Punches a hole of at most `most_bytes`. False: there was nothing left. A file system that
  // cannot is not asked again.
  bool release(uint64_t most_bytes);

 private:
  int fd_ = -1;  // below 0: blocks stay
  std::vector<ByteRange> ranges_;
};

}  // namespace pmstore::persist::internal
