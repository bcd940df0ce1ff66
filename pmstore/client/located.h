// Located: what a lookup found, and what a commit validates it by.
#pragma once

#include <cstdint>

#include "pmstore/types.h"

namespace pmstore::internal {

struct Located {
  bool found = false;
  uint8_t size_class = 0;  // of the slot, or a smaller one where that is not certain
  uint16_t reserved = 0;
  SlotOffset slot{};            // when found
  uint64_t version = 0;         // when found
  uint64_t bucket = 0;          // when not found
  uint64_t bucket_version = 0;  // when not found
};

}  // namespace pmstore::internal
