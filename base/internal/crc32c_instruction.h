// The processor's CRC32C instruction, for sums of few bytes.
//
// Threads: any number at the same time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pmstore::base::internal {

// Whether this processor has the instruction (SSE4.2).
bool processor_has_crc32c();

// Continues from `state` with these bytes, as ISA-L's crc32_iscsi() does: neither the state nor the
// result is inverted. Requires processor_has_crc32c().
uint32_t crc32c_by_instruction(const std::byte* data, size_t bytes, uint32_t state);

}  // namespace pmstore::base::internal
