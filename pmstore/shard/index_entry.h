// IndexEntry: what an index knows of a record.
#pragma once

#include <cstdint>

#include "pmstore/types.h"

namespace pmstore::internal {

struct IndexEntry {
  SlotOffset slot;
  uint8_t size_class;
};

}  // namespace pmstore::internal
