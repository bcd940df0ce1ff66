// How long moves of records wait for scans, and scans for moves.
#include "pmstore/server/scan_patience.h"

#include <gtest/gtest.h>

#include "pmstore/scan_repeats.h"

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

// Scans that take `scan_ns` and are all ended; their number.
int end_all(uint64_t scan_ns, uint64_t& took_ns) {
  base::VirtualClock clock;
  base::Executor executor(clock);
  const auto scan_all = [&]() -> base::Task<int> {
    ScanRepeats repeats(executor);
    for (int scans = 1;; ++scans) {
      co_await executor.sleep_for(scan_ns);
      const bool again = co_await repeats.pause();
      if (!again) co_return scans;
    }
  };
  const uint64_t begun_ns = clock.now_ns();
  const int scans = executor.run(scan_all());
  took_ns = clock.now_ns() - begun_ns;
  return scans;
}

TEST(ScanRepeats, PauseAndEndAfterThreeMinutes) {
  uint64_t took_ns = 0;
  const int fast = end_all(1'000'000, took_ns);
  EXPECT_GT(fast, 30);
  EXPECT_LT(fast, 50) << "they do not spin";
  EXPECT_GE(took_ns, ScanRepeats::kMostNs);
  EXPECT_LT(took_ns, ScanRepeats::kMostNs + 6 * kSecondNs);
  EXPECT_EQ(end_all(200 * kSecondNs, took_ns), 1);
}

TEST(ScanRepeats, SomeBeginWhileMovesWaitAgain) {
  // At worst moves have just begun: they go on for a minute, and then wait for scans.
  EXPECT_GE(ScanRepeats::kMostNs, ScanPatience::kMovesNs + 2 * ScanPatience::kMostNs);
}

}  // namespace
}  // namespace pmstore::internal
