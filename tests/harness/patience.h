// How long a test waits for what must happen, before it fails.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace pmstore::harness {

// So long that it is over on the busiest machine only when it never comes. The mutants' program
// sets less: most of them are noticed by something that does not come.
inline uint64_t patience_ns() {
  const char* const seconds = std::getenv("PMSTORE_TEST_PATIENCE_S");
  return 1'000'000'000 * (seconds == nullptr ? 60 : std::strtoull(seconds, nullptr, 10));
}

}  // namespace pmstore::harness
