#include "base/checksum.h"

#define XXH_INLINE_ALL
#include <isa-l/crc.h>
#include <xxhash.h>

namespace pmstore::base {

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t seed) {
  // crc32_iscsi neither inverts its start value nor its result; standard CRC32C does both.
  auto* data = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(bytes.data()));
  return ~crc32_iscsi(data, static_cast<int>(bytes.size()), ~seed);
}

uint64_t checksum64(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

}  // namespace pmstore::base
