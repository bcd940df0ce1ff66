#include "base/checksum.h"

// What the library exports first: behind XXH_INLINE_ALL its header declares inlined functions only.
#ifdef __x86_64__
#define XXH_DISPATCH_DISABLE_REPLACE
#include <xxh_x86dispatch.h>
#endif
#define XXH_INLINE_ALL
#include <isa-l/crc.h>
#include <xxhash.h>

#include <algorithm>

#include "base/internal/crc32c_instruction.h"

namespace pmstore::base {
namespace {

// Up to here the checksum instruction by itself is quicker than ISA-L, which sets out to sum much:
// 100 bytes take 11 ns instead of 28 on an AMD EPYC.
constexpr size_t kFewBytes = 192;

const bool kHasInstruction = internal::processor_has_crc32c();

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t seed) {
  if (bytes.size() <= kFewBytes && kHasInstruction) {
    return ~internal::crc32c_by_instruction(bytes.data(), bytes.size(), ~seed);
  }
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

// Inlined, XXH3 has the instructions that the project is compiled for, SSE2: 16 KiB take 3.0 us on
// an AMD EPYC. The library takes the widest vectors that the processor has: 0.37 us. Up to
// XXH3_MIDSIZE_MAX bytes there are no vectors, and the inlined one needs no call.
uint64_t checksum64(std::span<const std::byte> bytes, uint64_t seed) {
#ifdef __x86_64__
  if (bytes.size() > XXH3_MIDSIZE_MAX) {
    return XXH3_64bits_withSeed_dispatch(bytes.data(), bytes.size(), seed);
  }
#endif
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

}  // namespace pmstore::base
