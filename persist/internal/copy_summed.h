// A copy into persistent memory that computes the CRC32C of what it copies, in one pass.
//
// The checksum instruction and the store take turns, so that the sum (8 bytes a cycle, three
// independent lanes) is computed while the memory takes the stores; docs/persist.md has figures.
// The lanes' sums are joined by one carry-less multiplication each: V. Gopal et al., "Fast CRC
// Computation for iSCSI Polynomial Using CRC32 Instruction", Intel 2011. Processors with VPCLMULQDQ
// (Ice Lake, Zen 4) load, store and sum whole lines: four sums of 64 bytes each, moved ahead by
// carry-less multiplication: V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using
// PCLMULQDQ Instruction", Intel 2009.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace pmstore::persist::internal {

enum class CopyPath : uint8_t { kCached, kPastCaches };
enum class CopyWidth : uint8_t {
  kWords,  // needs processor_sums()
  kLines,  // needs AVX-512 and VPCLMULQDQ
};
// What this processor does best, when processor_sums(). (Two lines past the caches, a line at a
// time, take 60 ns until the fence is through, 16 bytes at a time 10; 64 lines 110 and 160.)
CopyWidth best_width(size_t lines);

// to[0, 64 * lines) = from[...); gives the CRC32C of these bytes after others whose sum is `crc`,
// as base::crc32c() does. Every byte of `from` is read once: the sum is of what was stored, even
// while somebody writes there. `to` is aligned to 64, `from` to nothing; aligned 8-byte words are
// never torn.
uint32_t copy_lines_summed(void* to, const void* from, size_t lines, CopyPath path, uint32_t crc,
                           CopyWidth width);

// A frame of few bytes: to[0, 8 * words) = `head`, then `body`, then zeros, through the caches, a
// word at a time. The CRC32C of head and body but the first four bytes, after others whose sum is
// `crc`, goes into these four, which are 0 in `head`; their word is stored last. Every byte of
// `body` counts as it was read once. Needs processor_sums().
void store_frame(uint64_t* to, std::span<const uint64_t> head, std::span<const std::byte> body,
                 size_t words, uint32_t crc);

// Whether this processor has the instructions: SSE4.2 and PCLMULQDQ.
bool processor_sums();

}  // namespace pmstore::persist::internal
