// What programs share that measure a store by the processor time of their thread: a mistake ends
// them.
#pragma once

#include <errno.h>
#include <fmt/format.h>
#include <time.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>

#include "base/result.h"

namespace pmstore::compare {

// One line to stderr, with the program's name.
[[noreturn]] inline void fail(const std::string& why) {
  fmt::print(stderr, "{}: {}\n", program_invocation_short_name, why);
  std::exit(1);
}
template <typename T>
T must(Result<T> result) {
  if (!result) fail(result.error().to_string());
  return std::move(*result);
}
inline void must(const Status& status) {
  if (!status) fail(status.error().to_string());
}

// Other programs on the machine change it little.
inline uint64_t thread_cpu_ns() {
  timespec spent{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
  return static_cast<uint64_t>(spent.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(spent.tv_nsec);
}

}  // namespace pmstore::compare
