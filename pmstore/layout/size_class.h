// Slot sizes: multiples of 64 B below 256 B and of 256 B above (rules H5 to H7).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace pmstore {

// About 1.5x apart, the last one holds the largest record: 32 + 512 + 1 MiB.
inline constexpr std::array<uint32_t, 30> kSlotBytes = {
    64,    128,   192,    256,    512,    768,    1024,   1536,   2048,   3072,
    4096,  6144,  8192,   12288,  16384,  20480,  24576,  32768,  40960,  49152,
    65536, 98304, 131072, 196608, 262144, 393216, 524288, 786432, 917504, 1049344};
inline constexpr size_t kSizeClasses = kSlotBytes.size();

// The smallest class whose slots hold `bytes`; kSizeClasses when none does.
constexpr uint8_t size_class_of(uint64_t bytes) {
  uint8_t index = 0;
  while (index < kSizeClasses && kSlotBytes[index] < bytes) ++index;
  return index;
}
static_assert(size_class_of(32 + 512 + (1u << 20)) == kSizeClasses - 1);
static_assert([] {
  for (size_t i = 0; i < kSizeClasses; ++i) {
    if (i > 0 && kSlotBytes[i] <= kSlotBytes[i - 1]) return false;
    if (kSlotBytes[i] % (kSlotBytes[i] < 256 ? 64 : 256) != 0) return false;
  }
  return true;
}());

}  // namespace pmstore
