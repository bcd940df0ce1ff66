#include "base/internal/crc32c_instruction.h"

#include <immintrin.h>

#include <cstring>

namespace pmstore::base::internal {

bool processor_has_crc32c() { return __builtin_cpu_supports("sse4.2"); }

// Not seen by a thread sanitizer, as ISA-L's assembly is not: a server sums memory that a one-sided
// WRITE may just be changing, and that the sum is wrong then is what it is for.
__attribute__((target("sse4.2"), no_sanitize("thread"))) uint32_t crc32c_by_instruction(
    const std::byte* data, size_t bytes, uint32_t state) {
  uint64_t wide = state;
  for (; bytes >= sizeof wide; bytes -= sizeof wide, data += sizeof wide) {
    uint64_t word;
    std::memcpy(&word, data, sizeof word);
    wide = _mm_crc32_u64(wide, word);
  }
  state = static_cast<uint32_t>(wide);
  if (bytes >= sizeof state) {
    uint32_t word;
    std::memcpy(&word, data, sizeof word);
    state = _mm_crc32_u32(state, word);
    bytes -= sizeof word;
    data += sizeof word;
  }
  for (; bytes > 0; --bytes) state = _mm_crc32_u8(state, static_cast<uint8_t>(*data++));
  return state;
}

}  // namespace pmstore::base::internal
