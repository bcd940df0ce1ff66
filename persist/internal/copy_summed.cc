#include "persist/internal/copy_summed.h"

#include <immintrin.h>

#include <cstring>

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

// ---- a line at a time ----

#define PMSTORE_WIDE __attribute__((target("avx512f,vpclmulqdq,sse4.2"), always_inline)) inline

// Multiplies each 16 bytes by x^`bits`: what they are worth so many bits further in front. Of the
// two factors the first is for the 8 bytes that come first, which stand 64 bits higher.
template <uint64_t bits>
PMSTORE_WIDE __m512i moved_ahead(__m512i words) {
  constexpr int64_t kFirst = power_of_x(bits + 64 - 33);
  constexpr int64_t kSecond = power_of_x(bits - 33);
  const __m512i factors = _mm512_set_epi64(kSecond, kFirst, kSecond, kFirst,  //
                                           kSecond, kFirst, kSecond, kFirst);
  return _mm512_xor_si512(_mm512_clmulepi64_epi128(words, factors, 0x00),
                          _mm512_clmulepi64_epi128(words, factors, 0x11));
}

template <CopyPath path>
PMSTORE_WIDE __m512i copy_line(std::byte* to, const std::byte* from) {
  __m512i line = _mm512_loadu_si512(from);
  asm volatile("" : "+v"(line));  // the compiler may not read it again
  auto* slot = reinterpret_cast<__m512i*>(to);
  if constexpr (path == CopyPath::kPastCaches) {
    asm volatile("vmovntdq %1, %0" : "=m"(*slot) : "v"(line));
  } else {
    asm volatile("vmovdqa64 %1, %0" : "=m"(*slot) : "v"(line));
  }
  return line;
}

// The sum of 64 bytes, of which the first four have taken up the state before.
__attribute__((target("avx512f,vpclmulqdq,sse4.2"))) uint32_t sum_of_line(__m512i line) {
  alignas(kLine) uint64_t words[kLine / sizeof(uint64_t)];
  _mm512_store_si512(words, line);
  uint64_t state = 0;
  for (const uint64_t word : words) state = _mm_crc32_u64(state, word);
  return static_cast<uint32_t>(state);
}

template <CopyPath path>
__attribute__((target("avx512f,vpclmulqdq,sse4.2"))) uint32_t copy_all_wide(std::byte* to,
                                                                            const std::byte* from,
                                                                            size_t lines,
                                                                            uint32_t crc) {
  constexpr size_t kLanes = 4;
  constexpr uint64_t kLineBits = 8 * kLine;
  if (lines == 0) return crc;
  const __m512i state = _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int32_t>(~crc)));
  __m512i sum = _mm512_xor_si512(copy_line<path>(to, from), state);
  size_t done = 1;
  if (lines >= 2 * kLanes) {
    __m512i lanes[kLanes] = {sum};
#pragma GCC unroll 4
    for (; done < kLanes; ++done) {
      lanes[done] = copy_line<path>(to + done * kLine, from + done * kLine);
    }
    for (; done + kLanes <= lines; done += kLanes) {
#pragma GCC unroll 4  // else the sums go through memory
      for (size_t i = 0; i < kLanes; ++i) {
        const size_t at = (done + i) * kLine;
        lanes[i] = _mm512_xor_si512(moved_ahead<kLanes * kLineBits>(lanes[i]),
                                    copy_line<path>(to + at, from + at));
      }
    }
    sum = lanes[0];
#pragma GCC unroll 4
    for (size_t i = 1; i < kLanes; ++i) {
      sum = _mm512_xor_si512(moved_ahead<kLineBits>(sum), lanes[i]);
    }
  }
  for (; done < lines; ++done) {
    sum = _mm512_xor_si512(moved_ahead<kLineBits>(sum),
                           copy_line<path>(to + done * kLine, from + done * kLine));
  }
  asm volatile("" : : : "memory");
  return ~sum_of_line(sum);
}

template <CopyPath path>
uint32_t copy_by(CopyWidth width, std::byte* to, const std::byte* from, size_t lines,
                 uint32_t crc) {
  return width == CopyWidth::kLines ? copy_all_wide<path>(to, from, lines, crc)
                                    : copy_all<path>(to, from, lines, crc);
}

}  // namespace

__attribute__((target("sse4.2"))) void store_frame(uint64_t* to, std::span<const uint64_t> head,
                                                   std::span<const std::byte> body, size_t words,
                                                   uint32_t crc) {
  constexpr size_t kBytes = sizeof(uint64_t);
  const auto store = [](uint64_t* slot, uint64_t word) {
    __atomic_store_n(slot, word, __ATOMIC_RELAXED);
  };
  uint64_t* const end = to + words;
  uint64_t* slot = to + 1;
  uint64_t state = _mm_crc32_u32(~crc, static_cast<uint32_t>(head[0] >> 32));
  for (const uint64_t word : head.subspan(1)) {
    state = _mm_crc32_u64(state, word);
    store(slot++, word);
  }
  const std::byte* from = body.data();
  for (size_t i = body.size() / kBytes; i > 0; --i, from += kBytes) {
    uint64_t word;
    std::memcpy(&word, from, kBytes);
    asm volatile("" : "+r"(word));  // the compiler may not read it again
    state = _mm_crc32_u64(state, word);
    store(slot++, word);
  }
  if (const size_t left = body.size() % kBytes; left > 0) {
    uint64_t word = 0;
    std::memcpy(&word, from, left);
    asm volatile("" : "+r"(word));
    for (size_t i = 0; i < left; ++i) {
      state = _mm_crc32_u8(static_cast<uint32_t>(state), static_cast<uint8_t>(word >> 8 * i));
    }
    store(slot++, word);
  }
  while (slot < end) store(slot++, 0);
  store(to, head[0] | static_cast<uint32_t>(~state));
}

bool processor_sums() {
  static const bool can = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
  return can;
}

CopyWidth best_width(size_t lines) {
  constexpr size_t kFewLines = 8;
  static const bool can_sum_lines = __builtin_cpu_supports("avx512f") &&
                                    __builtin_cpu_supports("vpclmulqdq") &&
                                    __builtin_cpu_supports("sse4.2");
  return can_sum_lines && lines >= kFewLines ? CopyWidth::kLines : CopyWidth::kWords;
}

uint32_t copy_lines_summed(void* to, const void* from, size_t lines, CopyPath path, uint32_t crc,
                           CopyWidth width) {
  auto* target = static_cast<std::byte*>(to);
  auto* source = static_cast<const std::byte*>(from);
  return path == CopyPath::kPastCaches
             ? copy_by<CopyPath::kPastCaches>(width, target, source, lines, crc)
             : copy_by<CopyPath::kCached>(width, target, source, lines, crc);
}

}  // namespace pmstore::persist::internal
