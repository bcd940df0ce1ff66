// How long an idle executor spins: a course of waits in, a window out. No clock is read.
#include "base/spin_window.h"

#include <gtest/gtest.h>

namespace pmstore::base {
namespace {

constexpr uint64_t kLongWaitNs = 1'000'000;

// An adaptive window that has learned that waits are long.
SpinWindow after_long_waits() {
  SpinWindow window(PollMode::kAdaptive);
  for (int i = 0; i < 8; ++i) window.count_wait(0, kLongWaitNs);
  return window;
}

TEST(SpinWindow, AlwaysNeverBlocksAndNeverAlwaysBlocks) {
  SpinWindow always(PollMode::kAlways), never(PollMode::kNever);
  for (int i = 0; i < 100; ++i) {
    always.count_wait(0, kLongWaitNs);
    never.count_wait(0, 100);
    ASSERT_EQ(always.window_ns(), SpinWindow::kForever);
    ASSERT_EQ(never.window_ns(), 0u);
  }
}

TEST(SpinWindow, LongWaitsEndTheSpinning) {
  EXPECT_GT(SpinWindow(PollMode::kAdaptive).window_ns(), 0u);
  EXPECT_EQ(after_long_waits().window_ns(), 0u);
}

TEST(SpinWindow, AShortWaitBringsItBack) {
  SpinWindow window = after_long_waits();
  window.count_wait(0, 2'000);
  EXPECT_EQ(window.window_ns(), SpinWindow::kMaxNs);
}

TEST(SpinWindow, ALongWaitAmongShortOnesDoesNotEndTheSpinning) {
  SpinWindow window(PollMode::kAdaptive);
  for (int i = 0; i < 100; ++i) {
    window.count_short_wait();
    window.count_wait(0, kLongWaitNs);
    ASSERT_GE(window.window_ns(), SpinWindow::kMaxNs / 2);
  }
}

TEST(SpinWindow, TriesTheLongestWindowNowAndThen) {
  SpinWindow window = after_long_waits();
  unsigned waits = 0, tried = 0;
  for (; waits < 10 * (SpinWindow::kWaitsBetweenTrials + SpinWindow::kTrialWaits); ++waits) {
    if (window.window_ns() == SpinWindow::kMaxNs) ++tried;
    window.count_wait(0, kLongWaitNs);
  }
  EXPECT_GE(tried, 8 * SpinWindow::kTrialWaits);
  EXPECT_LE(tried, 11 * SpinWindow::kTrialWaits) << "trials take a processor from others";
}

TEST(SpinWindow, ACrowdedMachineEndsSpinningForAWhileAtTheThirdLook) {
  SpinWindow window(PollMode::kAdaptive);
  uint64_t now_ns = 1'000'000'000;
  for (unsigned look = 1; look < SpinWindow::kLooks; ++look, now_ns += 1'000'000) {
    ASSERT_TRUE(window.wants_crowding(now_ns));
    window.count_crowded(now_ns);
    EXPECT_GT(window.window_ns(), 0u) << "a thread that runs for a moment is no crowd";
    EXPECT_FALSE(window.wants_crowding(now_ns)) << "it looks again, but not at once";
  }
  window.count_crowded(now_ns);
  EXPECT_EQ(window.window_ns(), 0u);
  window.count_wait(now_ns + SpinWindow::kCrowdedNs - 1, 100);
  EXPECT_EQ(window.window_ns(), 0u) << "short waits among sleepers do not mean that spinning pays";
  now_ns += SpinWindow::kCrowdedNs;
  window.count_wait(now_ns, 100);
  EXPECT_GT(window.window_ns(), 0u);
  for (unsigned look = 1; look <= SpinWindow::kLooksAgain; ++look) window.count_crowded(++now_ns);
  EXPECT_EQ(window.window_ns(), 0u) << "still crowded";
  window.count_wait(now_ns + 2 * SpinWindow::kCrowdedNs - 1, 100);
  EXPECT_EQ(window.window_ns(), 0u) << "twice as long as the first time";
  window.count_wait(now_ns + 2 * SpinWindow::kCrowdedNs, 100);
  EXPECT_GT(window.window_ns(), 0u);
}

// Two looks are enough as long as it remembers the last crowd: a second.
TEST(SpinWindow, ACrowdIsRememberedForAWhile) {
  for (const bool remembered : {true, false}) {
    SpinWindow window(PollMode::kAdaptive);
    uint64_t now_ns = 1'000'000'000;
    for (unsigned look = 1; look <= SpinWindow::kLooks; ++look) window.count_crowded(now_ns);
    ASSERT_EQ(window.window_ns(), 0u);
    now_ns += SpinWindow::kCrowdedNs + (remembered ? 900'000'000 : 1'100'000'000);
    window.count_wait(now_ns, 100);
    for (unsigned look = 1; look < (remembered ? 2 : 3); ++look) window.count_crowded(now_ns);
    EXPECT_GT(window.window_ns(), 0u) << "remembered: " << remembered;
    window.count_crowded(now_ns);
    EXPECT_EQ(window.window_ns(), 0u) << "remembered: " << remembered;
    const uint64_t quiet_ns = (remembered ? 2 : 1) * SpinWindow::kCrowdedNs;
    window.count_wait(now_ns + quiet_ns - 1, 100);
    EXPECT_EQ(window.window_ns(), 0u) << "remembered: " << remembered;
    window.count_wait(now_ns + quiet_ns, 100);
    EXPECT_GT(window.window_ns(), 0u) << "remembered: " << remembered;
  }
}

TEST(SpinWindow, ACrowdThatStaysIsLookedAtEverMoreRarelyUpToABound) {
  SpinWindow window(PollMode::kAdaptive);
  uint64_t now_ns = 1'000'000'000;
  for (int time = 0; time < 20; ++time) {
    for (unsigned look = 1; look <= SpinWindow::kLooks && window.window_ns() > 0; ++look) {
      window.count_crowded(++now_ns);
    }
    ASSERT_EQ(window.window_ns(), 0u);
    uint64_t quiet_ns = 0;
    for (; window.window_ns() == 0; quiet_ns += 10'000'000)
      window.count_wait(now_ns += 10'000'000, 1);
    ASSERT_LE(quiet_ns, SpinWindow::kMaxCrowdedNs + 10'000'000);
    if (time > 6) {
      ASSERT_GE(quiet_ns, SpinWindow::kMaxCrowdedNs);
    }
  }
}

TEST(SpinWindow, ACrowdedMachineEndsATrial) {
  SpinWindow window = after_long_waits();
  for (unsigned i = 0; i <= SpinWindow::kWaitsBetweenTrials && window.window_ns() == 0; ++i) {
    window.count_wait(0, kLongWaitNs);
  }
  ASSERT_EQ(window.window_ns(), SpinWindow::kMaxNs) << "a trial";
  for (unsigned look = 1; look <= SpinWindow::kLooks; ++look) window.count_crowded(1'000'000'000);
  EXPECT_EQ(window.window_ns(), 0u);
}

TEST(SpinWindow, AQuietLookForgetsTheSuspicion) {
  SpinWindow window(PollMode::kAdaptive);
  for (unsigned look = 1; look < SpinWindow::kLooks; ++look) window.count_crowded(1'000'000'000);
  window.count_uncrowded(1'001'000'000);
  window.count_crowded(1'100'000'000);
  EXPECT_GT(window.window_ns(), 0u);
}

TEST(Crowding, ThisThreadRunsOnSomeProcessor) {
  EXPECT_GE(runnable_threads(), 1u);
  EXPECT_GE(own_processors(), 1u);
}

}  // namespace
}  // namespace pmstore::base
