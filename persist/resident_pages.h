// ResidentPages: a pool in a file whose pages stay in the file's memory when this process needs
// them no more.
//
// A look at one line makes the system map the pages around it, which then count as the process'
// resident memory. Threads: one at a time, as for the pool.
#pragma once

#include <cstdint>

#include "persist/pool.h"

namespace pmstore::persist {

class ResidentPages {
 public:
  virtual ~ResidentPages() = default;
  // nullptr: `pool` is memory of the process itself.
  static const ResidentPages* of(const Pool& pool) {
    return dynamic_cast<const ResidentPages*>(&pool);
  }

  // Whole pages of [offset, offset + bytes) are not resident from here on, until they are used
  // again. Nothing else changes. Where the system refuses, they stay.
  virtual void forget(uint64_t offset, uint64_t bytes) const = 0;
};

}  // namespace pmstore::persist
