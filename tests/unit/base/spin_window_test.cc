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

TEST(SpinWindow, ShortWaitsBringItBackAndFitTheWindowToThem) {
  SpinWindow window = after_long_waits();
  window.count_wait(0, 2'000);
  EXPECT_GT(window.window_ns(), 2'000u);
  for (int i = 0; i < 100; ++i) window.count_wait(0, 2'000);
  EXPECT_GT(window.window_ns(), 2'000u);
  EXPECT_LT(window.window_ns(), SpinWindow::kMaxNs / 2) << "3 times the average, not the longest";
  for (int i = 0; i < 100; ++i) window.count_short_wait();
  EXPECT_GE(window.window_ns(), SpinWindow::kMinNs);
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

TEST(SpinWindow, ACrowdedMachineEndsSpinningForAWhileAtTheSecondLook) {
  SpinWindow window(PollMode::kAdaptive);
  uint64_t now_ns = 1'000'000'000;
  ASSERT_TRUE(window.wants_crowding(now_ns));
  window.count_crowded(now_ns);
  EXPECT_GT(window.window_ns(), 0u) << "a thread that runs for a moment is no crowd";
  EXPECT_FALSE(window.wants_crowding(now_ns));
  now_ns += 1'000'000;
  ASSERT_TRUE(window.wants_crowding(now_ns));
  window.count_crowded(now_ns);
  EXPECT_EQ(window.window_ns(), 0u);
  window.count_wait(now_ns + SpinWindow::kCrowdedNs - 1, 100);
  EXPECT_EQ(window.window_ns(), 0u) << "short waits among sleepers do not mean that spinning pays";
  now_ns += SpinWindow::kCrowdedNs;
  window.count_wait(now_ns, 100);
  EXPECT_GT(window.window_ns(), 0u);
  ASSERT_TRUE(window.wants_crowding(now_ns));
  window.count_crowded(now_ns);
  EXPECT_EQ(window.window_ns(), 0u) << "still crowded: one look is enough";
}

TEST(SpinWindow, AQuietLookForgetsTheSuspicion) {
  SpinWindow window(PollMode::kAdaptive);
  window.count_crowded(1'000'000'000);
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
