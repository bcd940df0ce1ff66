// Copies of whole lines of 64 bytes, of which one side may be changing.
//
// Aligned loads and stores of 16 bytes, as inline assembly: a thread sanitizer does not see them,
// whereas it would report intrinsics as plain racing accesses. A processor with SSE2 tears no
// aligned 8-byte word of them.
#pragma once

#include <emmintrin.h>

#include <cstddef>

namespace pmstore::base::internal {

inline constexpr size_t kSharedLineBytes = 64;

// `shared_to` is aligned to 64; `from` to nothing. Through the caches, or past them.
template <bool kPastCaches>
inline void store_lines(void* shared_to, const void* from, size_t lines) {
  auto* to = static_cast<char*>(shared_to);
  auto* source = static_cast<const char*>(from);
  for (; lines > 0; --lines, to += kSharedLineBytes, source += kSharedLineBytes) {
    __m128i words[4];
    __builtin_memcpy(words, source, sizeof words);
    auto* slots = reinterpret_cast<__m128i*>(to);
    for (size_t i = 0; i < 4; ++i) {
      if constexpr (kPastCaches) {
        asm volatile("movntdq %1, %0" : "=m"(slots[i]) : "x"(words[i]));
      } else {
        asm volatile("movdqa %1, %0" : "=m"(slots[i]) : "x"(words[i]));
      }
    }
  }
}

// `shared_from` is aligned to 64; `to` to nothing.
inline void load_lines(void* to, const void* shared_from, size_t lines) {
  auto* target = static_cast<char*>(to);
  auto* from = static_cast<const char*>(shared_from);
  for (; lines > 0; --lines, target += kSharedLineBytes, from += kSharedLineBytes) {
    __m128i words[4];
    auto* slots = reinterpret_cast<const __m128i*>(from);
    for (size_t i = 0; i < 4; ++i) asm volatile("movdqa %1, %0" : "=x"(words[i]) : "m"(slots[i]));
    __builtin_memcpy(target, words, sizeof words);
  }
}

// Stores past the caches become visible before later stores.
inline void order_lines() { asm volatile("sfence" : : : "memory"); }

}  // namespace pmstore::base::internal
