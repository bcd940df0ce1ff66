// How peers name a region: its key, and the address of its first byte that follows from the key, so
// that an address used with another region's key does not fit there by chance, and no pointer of
// ours leaves the process. Any thread.
#pragma once

#include <cstdint>

#include "base/random.h"
#include "base/result.h"

namespace pmstore::fabric::internal {

// 64 bits that nobody can guess. Io when the kernel has none.
Result<uint64_t> random_key();

// What the region's first byte is called; a whole number of pages, never 0.
inline uint64_t address_base(uint64_t key) {
  return (base::mix64(key) & 0x7fff'ffff'f000u) | uint64_t{1} << 47;
}

}  // namespace pmstore::fabric::internal
