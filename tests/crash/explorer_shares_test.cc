// Shares of an explorer: all of them together cut the power where one without shares does.
#include <gtest/gtest.h>

#include "tests/crash/explorer.h"
#include "tests/crash/recorded_run.h"

namespace pmstore::crash {
namespace {

ExplorerReport explored(const RecordedRun& run, uint64_t share, uint64_t shares) {
  ExplorerOptions options;
  options.inner_every = UINT64_MAX / 64;  // a second run has events of its own
  options.per_point = 16;
  options.per_inner_point = 1;
  options.share = share;
  options.shares = shares;
  Explorer explorer(options);
  EXPECT_TRUE(explorer.explore(run));
  return explorer.report();
}

TEST(ExplorerShares, TogetherHaveEachPowerCutAndEachDeathOnce) {
  const auto run = find_scenario("log")->make(0);
  const size_t events = run->trace().events.size();
  ASSERT_GT(events, 4 * 7 * kSharedEvents);
  const ExplorerReport whole = explored(*run, 0, 1);
  ASSERT_GT(whole.process_deaths, 7U);
  uint64_t deaths = 0;
  uint64_t recovered = 0;
  for (uint64_t share = 0; share < 7; ++share) {
    const ExplorerReport part = explored(*run, share, 7);
    EXPECT_GT(part.points, events / 8) << share;
    EXPECT_LT(part.recovered, whole.recovered / 2) << share;
    deaths += part.process_deaths;
    recovered += part.recovered;
  }
  EXPECT_EQ(deaths, whole.process_deaths);
  EXPECT_GE(recovered, whole.recovered);
}

TEST(ExplorerShares, OfPowerCutsAloneAddUpToAllEvents) {
  const auto run = find_scenario("log")->make(1);
  const uint64_t events = run->trace().events.size();
  uint64_t points = 0;
  for (uint64_t share = 0; share < 5; ++share) {
    ExplorerOptions options;
    options.most_samples = 1;
    options.per_point = 1;
    options.inner_every = UINT64_MAX / 64;
    options.process_deaths = false;
    options.share = share;
    options.shares = 5;
    Explorer explorer(options);
    EXPECT_TRUE(explorer.explore(*run));
    points += explorer.report().points;
  }
  EXPECT_EQ(points, events + 1);  // also behind the last one
}

TEST(ExplorerSharesDeathTest, OneThatThereIsNotIsRefused) {
  ExplorerOptions options;
  options.share = 3;
  options.shares = 3;
  EXPECT_DEATH(Explorer{options}, "another share");
}

}  // namespace
}  // namespace pmstore::crash
