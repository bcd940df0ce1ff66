// XXH3 of many bytes by vectors of 32 bytes (AVX2), and with a copy in the same pass.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pmstore::base::internal {

// So many bytes at least; fewer have another algorithm.
inline constexpr size_t kLeastVectorBytes = 241;

bool processor_has_xxh3_vectors();
// XXH3, 64 bits. Asks for memory a page ahead.
uint64_t xxh3_by_vectors(const std::byte* from, size_t bytes, uint64_t seed);
// The same; copies from[skipped, bytes) to `to`.
uint64_t xxh3_and_copy_by_vectors(const std::byte* from, size_t bytes, uint64_t seed,
                                  size_t skipped, std::byte* to);

}  // namespace pmstore::base::internal
