#include "base/checksum.h"

#define XXH_INLINE_ALL
#include <isa-l/crc.h>
#include <xxhash.h>

#include <algorithm>

namespace pmstore::base {

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t seed) {
  // crc32_iscsi neither inverts its start value nor its result; standard CRC32C does both.
  constexpr size_t kMost = 1u << 30;  // its count is an int
  uint32_t state = ~seed;
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(bytes.size(), kMost));
    auto* data = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(part.data()));
    state = crc32_iscsi(data, static_cast<int>(part.size()), state);
    bytes = bytes.subspan(part.size());
  }
  return ~state;
}

uint64_t checksum64(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

}  // namespace pmstore::base
