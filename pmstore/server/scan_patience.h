// ScanPatience: how long moves of records that are due wait for scans, which would have to begin
// again.
//
// They wait 60 s in all, then scans must begin again for 60 s, and then the moves wait as long
// again. So a scan that takes less than 60 s and begins again by itself comes to its end, however
// long records move. Invariant: of any 120 s at most 60 s are spent waiting, but for the last wait.
// Threads: the server's. Times are of one clock, in nanoseconds.
#pragma once

#include <cstdint>

namespace pmstore::internal {

class ScanPatience {
 public:
  static constexpr uint64_t kMostNs = 60'000'000'000;   // of waiting
  static constexpr uint64_t kMovesNs = 60'000'000'000;  // until the next waiting

  // Moves may still wait.
  bool has(uint64_t now_ns);
  // They have, for `ns` until now.
  void waited(uint64_t ns, uint64_t now_ns);

 private:
  uint64_t waited_ns_ = 0;
  uint64_t ended_ns_ = 0;  // the last waiting
};

}  // namespace pmstore::internal
