#include "pmstore/server/scan_patience.h"

namespace pmstore::internal {

bool ScanPatience::has(uint64_t now_ns) {
  if (waited_ns_ < kMostNs) return true;
  if (now_ns - ended_ns_ < kMovesNs) return false;
  waited_ns_ = 0;
  return true;
}

void ScanPatience::waited(uint64_t ns, uint64_t now_ns) {
  waited_ns_ += ns;
  ended_ns_ = now_ns;
}

}  // namespace pmstore::internal
