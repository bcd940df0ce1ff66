// The processor's instructions for persistent memory, by what they are for. Nothing outside
// persist/internal may use them directly.
//
// They are inline assembly rather than intrinsics for two reasons: the assembler takes clwb
// whatever -march says, so that one binary picks by CPUID at run time; and a thread sanitizer does
// not see the stores of copy_lines_non_temporal(), which race with readers word by word by design
// (base/atomic_copy.h), whereas it would report the intrinsics as plain racing stores.
#pragma once

#include <emmintrin.h>

#include <cstddef>
#include <cstdint>

#if !defined(__x86_64__)
#error "pmstore flushes with x86-64 instructions; other processors need their own persist/internal"
#endif

namespace pmstore::persist::internal {

enum class FlushInstruction : uint8_t {
  kClwb,        // writes back, may keep the line
  kClflushopt,  // writes back and evicts
  kClflush,     // the same, and each one waits for the one before
};

// The best that this processor has (CPUID leaf 7; clflush is part of x86-64).
FlushInstruction best_flush_instruction();
// "clwb", "clflushopt", "clflush".
const char* flush_instruction_name(FlushInstruction instruction);

inline void flush_line(FlushInstruction instruction, const void* line) {
  auto* bytes = static_cast<const volatile char*>(line);
  switch (instruction) {
    case FlushInstruction::kClwb: asm volatile("clwb %0" : : "m"(*bytes) : "memory"); return;
    case FlushInstruction::kClflushopt:
      asm volatile("clflushopt %0" : : "m"(*bytes) : "memory");
      return;
    case FlushInstruction::kClflush: asm volatile("clflush %0" : : "m"(*bytes) : "memory"); return;
  }
}

// Orders flushes and non-temporal stores before everything later; on ADR and eADR they are durable
// then.
inline void store_fence() { asm volatile("sfence" : : : "memory"); }

// to[0, 64 * lines) = from[...), past the caches or through them. `to` is aligned to 64; `from` to
// nothing. Aligned 8-byte words are never torn. 16 bytes at a time: past the caches, with 8 a copy
// of 4 KiB takes 1.6 times as long (measured on an AMD EPYC), with 32 no less.
template <bool kPast>
inline void copy_lines_by_16(void* to, const void* from, size_t lines) {
  auto* target = static_cast<char*>(to);
  auto* source = static_cast<const char*>(from);
  for (; lines > 0; --lines, target += 64, source += 64) {
    __m128i words[4];
    __builtin_memcpy(words, source, 64);
    auto* slots = reinterpret_cast<__m128i*>(target);
    for (size_t i = 0; i < 4; ++i) {
      if constexpr (kPast) {
        asm volatile("movntdq %1, %0" : "=m"(slots[i]) : "x"(words[i]));
      } else {
        asm volatile("movdqa %1, %0" : "=m"(slots[i]) : "x"(words[i]));
      }
    }
  }
  asm volatile("" : : : "memory");
}

inline void copy_lines_non_temporal(void* to, const void* from, size_t lines) {
  copy_lines_by_16<true>(to, from, lines);
}
inline void copy_lines(void* to, const void* from, size_t lines) {
  copy_lines_by_16<false>(to, from, lines);
}

}  // namespace pmstore::persist::internal
