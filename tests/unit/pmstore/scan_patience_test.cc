// How long moves of records wait for scans, and scans for moves.
#include "pmstore/server/scan_patience.h"

#include <gtest/gtest.h>

namespace pmstore::internal {
namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;

// Waits in half seconds from `now_ns` on while there is patience, as the server does; how long.
uint64_t wait_out(ScanPatience& patience, uint64_t& now_ns) {
  uint64_t waited_ns = 0;
  while (patience.has(now_ns)) {
    now_ns += kSecondNs / 2;
    waited_ns += kSecondNs / 2;
    patience.waited(kSecondNs / 2, now_ns);
  }
  return waited_ns;
}

TEST(ScanPatience, EndsAfterAMinuteAndIsThereAgainAfterAMinuteOfMoves) {
  ScanPatience patience;
  uint64_t now_ns = 5 * kSecondNs;
  EXPECT_EQ(wait_out(patience, now_ns), ScanPatience::kMostNs);
  now_ns += ScanPatience::kMovesNs - 1;
  EXPECT_EQ(wait_out(patience, now_ns), 0u);
  now_ns += 1;
  EXPECT_EQ(wait_out(patience, now_ns), ScanPatience::kMostNs);
  EXPECT_FALSE(patience.has(now_ns));
}

TEST(ScanPatience, IsOneForAllScansOfAMinute) {
  ScanPatience patience;
  uint64_t now_ns = kSecondNs;
  for (int scan = 0; scan < 6; ++scan) {
    ASSERT_TRUE(patience.has(now_ns)) << scan;
    patience.waited(10 * kSecondNs, now_ns);
    now_ns += 3 * kSecondNs;
  }
  EXPECT_FALSE(patience.has(now_ns));
}

}  // namespace
}  // namespace pmstore::internal
