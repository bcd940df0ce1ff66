// SparseBlocks: a pool whose file can give blocks back while the extents around them stay.
//
// Only a file that had holes when it was opened can; a device, and a file whose blocks were
// reserved, keep all of them. Threads: one at a time, as for the pool.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "persist/pool.h"

namespace pmstore::persist {

class SparseBlocks {
 public:
  virtual ~SparseBlocks() = default;
  // nullptr: `pool` keeps its blocks.
  static SparseBlocks* of(Pool& pool) {
    auto* const blocks = dynamic_cast<SparseBlocks*>(&pool);
    return blocks != nullptr && blocks->gives_back() ? blocks : nullptr;
  }

  // [offset, offset + bytes) of an extent (CHECK) is zero from here on, without blocks where it
  // covers whole ones. What was there must be of no use any more, also after a crash: it may come
  // back then. No device may have pinned the range. False: nothing has changed, and of() names no
  // blocks of this pool any more. Io: the file system did not take them.
  virtual Result<bool> give_back(uint64_t offset, uint64_t bytes) = 0;

 protected:
  virtual bool gives_back() const = 0;
};

}  // namespace pmstore::persist
