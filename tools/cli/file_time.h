// A time of stat(2) as files keep it: nanoseconds since 1970, in 64 bits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <ctime>

namespace pmstore::tools {

// Times that there is no number for become the first or the last whole second that has one, as
// Linux has it at the ends of a file system's range: 1970-01-01 00:00:00, 2554-07-21 23:34:32.
inline uint64_t kept_time_ns(const timespec& time) {
  constexpr uint64_t kSecond = 1'000'000'000;
  constexpr uint64_t kLastSecond = UINT64_MAX / kSecond - 1;
  if (time.tv_sec < 0) return 0;
  const auto seconds = static_cast<uint64_t>(time.tv_sec);
  if (seconds > kLastSecond) return kLastSecond * kSecond;
  return seconds * kSecond + static_cast<uint64_t>(time.tv_nsec);
}

}  // namespace pmstore::tools
