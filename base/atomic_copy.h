// Copies between private memory and memory that another thread, process or RNIC may be writing.
//
// Shared words are accessed with relaxed 8-byte atomics (single bytes at ragged ends), so that a
// racing copy is defined behaviour, a thread sanitizer stays meaningful, and an aligned 8-byte word
// is never torn. No ordering: pair with a fence, a queue, or a checksum. `shared` and `count` have
// no alignment requirement; the words that are atomic are the aligned ones of `shared`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace pmstore::base {

inline bool aligned8(const void* p) { return (reinterpret_cast<uintptr_t>(p) & 7) == 0; }

// private_dst[0, count) = shared_src[0, count)
inline void copy_from_shared(void* private_dst, const void* shared_src, size_t count) {
  auto* to = static_cast<std::byte*>(private_dst);
  auto* from = static_cast<const std::byte*>(shared_src);
  while (count > 0 && !aligned8(from)) {
    auto byte = __atomic_load_n(reinterpret_cast<const uint8_t*>(from++), __ATOMIC_RELAXED);
    *to++ = std::byte{byte};
    --count;
  }
  for (; count >= 8; count -= 8, from += 8, to += 8) {
    uint64_t word = __atomic_load_n(reinterpret_cast<const uint64_t*>(from), __ATOMIC_RELAXED);
    std::memcpy(to, &word, 8);
  }
  for (; count > 0; --count) {
    *to++ = std::byte{__atomic_load_n(reinterpret_cast<const uint8_t*>(from++), __ATOMIC_RELAXED)};
  }
}

// shared_dst[0, count) = private_src[0, count)
inline void copy_to_shared(void* shared_dst, const void* private_src, size_t count) {
  auto* to = static_cast<std::byte*>(shared_dst);
  auto* from = static_cast<const std::byte*>(private_src);
  while (count > 0 && !aligned8(to)) {
    __atomic_store_n(reinterpret_cast<uint8_t*>(to++), static_cast<uint8_t>(*from++),
                     __ATOMIC_RELAXED);
    --count;
  }
  for (; count >= 8; count -= 8, from += 8, to += 8) {
    uint64_t word;
    std::memcpy(&word, from, 8);
    __atomic_store_n(reinterpret_cast<uint64_t*>(to), word, __ATOMIC_RELAXED);
  }
  for (; count > 0; --count) {
    __atomic_store_n(reinterpret_cast<uint8_t*>(to++), static_cast<uint8_t>(*from++),
                     __ATOMIC_RELAXED);
  }
}

}  // namespace pmstore::base
