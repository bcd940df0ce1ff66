#include "persist/internal/copy_summed.h"

#include <immintrin.h>

namespace pmstore::persist::internal {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kWord = 16;  // bytes of one load and one store

// Polynomials modulo that of CRC32C, the coefficient of x^0 in the highest bit.
constexpr uint32_t kPolynomial = 0x82f63b78;
constexpr uint32_t kOne = 0x80000000;
constexpr uint32_t kX = kOne >> 1;

constexpr uint32_t multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = kOne; bit != 0; bit >>= 1) {
    if (b & bit) product ^= a;
    a = (a >> 1) ^ (a & 1 ? kPolynomial : 0);
  }
  return product;
}

constexpr uint32_t power_of_x(uint64_t exponent) {
  uint32_t power = kOne;
  for (uint32_t square = kX; exponent != 0; exponent >>= 1, square = multiply(square, square)) {
    if (exponent & 1) power = multiply(power, square);
  }
  return power;
}

#define PMSTORE_SUMMING __attribute__((target("sse4.2,pclmul"), always_inline)) inline

// The state after `bytes` zeros. The product of two reflected polynomials lacks a factor x, and the
// crc32 instruction multiplies by x^32.
template <uint64_t bytes>
PMSTORE_SUMMING uint64_t after_zeros(uint64_t state) {
  constexpr uint32_t kFactor = power_of_x(8 * bytes - 33);
  const __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128(static_cast<int64_t>(state)),
                                               _mm_cvtsi64_si128(static_cast<int64_t>(kFactor)), 0);
  return _mm_crc32_u64(0, static_cast<uint64_t>(_mm_cvtsi128_si64(product)));
}

template <CopyPath path>
PMSTORE_SUMMING uint64_t copy_word(std::byte* to, const std::byte* from, uint64_t state) {
  __m128i word = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  asm volatile("" : "+x"(word));  // the compiler may not read it again
  auto* slot = reinterpret_cast<__m128i*>(to);
  if constexpr (path == CopyPath::kPastCaches) {
    asm volatile("movntdq %1, %0" : "=m"(*slot) : "x"(word));
  } else {
    asm volatile("movdqa %1, %0" : "=m"(*slot) : "x"(word));
  }
  state = _mm_crc32_u64(state, static_cast<uint64_t>(_mm_cvtsi128_si64(word)));
  return _mm_crc32_u64(state, static_cast<uint64_t>(_mm_extract_epi64(word, 1)));
}

// Three times `lane_lines` lines, each lane with a sum of its own.
template <CopyPath path, size_t lane_lines>
PMSTORE_SUMMING uint64_t copy_lanes(std::byte* to, const std::byte* from, uint64_t state) {
  constexpr size_t kLane = lane_lines * kLine;
  uint64_t second = 0, third = 0;
  for (size_t i = 0; i < kLane; i += kWord) {
    state = copy_word<path>(to + i, from + i, state);
    second = copy_word<path>(to + kLane + i, from + kLane + i, second);
    third = copy_word<path>(to + 2 * kLane + i, from + 2 * kLane + i, third);
  }
  return after_zeros<2 * kLane>(state) ^ after_zeros<kLane>(second) ^ third;
}

template <CopyPath path>
__attribute__((target("sse4.2,pclmul"))) uint32_t copy_all(std::byte* to, const std::byte* from,
                                                           size_t lines, uint32_t crc) {
  uint64_t state = static_cast<uint32_t>(~crc);
  const auto advance = [&](size_t done) {
    to += done * kLine;
    from += done * kLine;
    lines -= done;
  };
  for (; lines >= 3 * 7; advance(3 * 7)) state = copy_lanes<path, 7>(to, from, state);
  for (; lines >= 3; advance(3)) state = copy_lanes<path, 1>(to, from, state);
  for (size_t i = 0; i < lines * kLine; i += kWord) {
    state = copy_word<path>(to + i, from + i, state);
  }
  asm volatile("" : : : "memory");
  return ~static_cast<uint32_t>(state);
}

}  // namespace

bool processor_sums() {
  static const bool can = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
  return can;
}

uint32_t copy_lines_summed(void* to, const void* from, size_t lines, CopyPath path, uint32_t crc) {
  auto* target = static_cast<std::byte*>(to);
  auto* source = static_cast<const std::byte*>(from);
  return path == CopyPath::kPastCaches ? copy_all<CopyPath::kPastCaches>(target, source, lines, crc)
                                       : copy_all<CopyPath::kCached>(target, source, lines, crc);
}

}  // namespace pmstore::persist::internal
