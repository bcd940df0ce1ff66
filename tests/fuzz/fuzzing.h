// What the fuzzers share: how many rounds, and memory between two pages that cannot be touched.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "base/check.h"

namespace pmstore::fuzz {

inline constexpr uint64_t kPage = 4096;

// PMSTORE_FUZZ_ROUNDS in the environment, else what is small enough for every test run.
inline uint64_t rounds(uint64_t usual) {
  const char* wanted = std::getenv("PMSTORE_FUZZ_ROUNDS");
  return wanted == nullptr ? usual : std::strtoull(wanted, nullptr, 10);
}

// Whole pages; an access right before or behind them ends the program.
template <uint64_t kBytes>
class Guarded {
 public:
  static_assert(kBytes % kPage == 0);
  Guarded()
      : mapping_(static_cast<std::byte*>(
            mmap(nullptr, kBytes + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    PMSTORE_CHECK(
        mapping_ != MAP_FAILED && mprotect(mapping_ + kPage, kBytes, PROT_READ | PROT_WRITE) == 0,
        "a few pages can be mapped");
  }
  ~Guarded() { munmap(mapping_, kBytes + 2 * kPage); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  std::span<std::byte> bytes() { return {mapping_ + kPage, kBytes}; }

 private:
  std::byte* mapping_;
};

}  // namespace pmstore::fuzz
