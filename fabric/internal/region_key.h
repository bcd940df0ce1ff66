// The names of a region for its peers: a random key, and an address of the first byte that is
// computed from the key. An address used with the key of another region is therefore out of bounds,
// and no pointer leaves the process. Any thread.
#pragma once

#include <cstdint>

#include "base/random.h"
#include "base/result.h"

namespace pmstore::fabric::internal {

// 64 bits that cannot be guessed. Io when the kernel has none.
Result<uint64_t> random_key();

// The address of the region's first byte, as peers name it: a whole number of pages, never 0.
inline uint64_t address_base(uint64_t key) {
  return (base::mix64(key) & 0x7fff'ffff'f000u) | uint64_t{1} << 47;
}

}  // namespace pmstore::fabric::internal
