// The XXH3 checksum of bytes that are far away, in memory and not in the caches, and a copy of them
// in the same pass.
//
// Both take turns line by line and ask for memory a page ahead. That pays for bytes that are not in
// the caches: 16 KiB take 2.2 us instead of 2.7, 64 KiB 7.1 instead of 9.9, but 4 KiB 5% more
// (AMD EPYC). docs/persist.md describes the same for CRC32C. No state; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace pmstore::base {

// checksum64(bytes, seed).
uint64_t checksum64_of_far(std::span<const std::byte> bytes, uint64_t seed);
// The same, and copies the bytes from `skipped` on to `to`, which has room for
// them and does not overlap. `bytes` do not change meanwhile. Requires skipped <= bytes.size().
uint64_t checksum64_and_copy(std::span<const std::byte> bytes, uint64_t seed, size_t skipped,
                             std::byte* to);

}  // namespace pmstore::base
