// wall_now_ns(): the time of day, for what people read: the times of files. Everything that waits
// uses base/clock.h. Any thread.
#pragma once

#include <time.h>

#include <cstdint>

namespace pmstore::base {

// Nanoseconds since 1970, UTC. It may go back.
inline uint64_t wall_now_ns() {
  timespec ts;
  clock_gettime(CLOCK_REALTIME, &ts);
  return static_cast<uint64_t>(ts.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(ts.tv_nsec);
}

}  // namespace pmstore::base
