#include "tools/bench/ycsb_workload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>

namespace pmstore::tools {
namespace {

const YcsbWorkload& workload(std::string_view name) {
  const auto& all = ycsb_workloads();
  return *std::find_if(all.begin(), all.end(), [&](const auto& each) { return each.name == name; });
}

TEST(YcsbWorkload, SharesAddUpAndScansHaveLengths) {
  for (const YcsbWorkload& each : ycsb_workloads()) {
    EXPECT_EQ(std::accumulate(std::begin(each.percent), std::end(each.percent), 0u), 100u);
    const bool scans = each.percent[static_cast<size_t>(YcsbOperation::kScan)] > 0;
    EXPECT_EQ(scans, each.scans()) << each.name;
    EXPECT_EQ(scans, each.shortest_scan > 0) << each.name;
  }
}

TEST(Zipfian, RanksAreAsProbableAsTheirPowers) {
  constexpr uint64_t kCount = 1000;
  constexpr int kDraws = 200'000;
  double zeta = 0;
  for (uint64_t i = 1; i <= kCount; ++i) zeta += std::pow(static_cast<double>(i), -0.99);
  const Zipfian zipfian(kCount);
  Random random(1);
  std::vector<int> drawn(kCount, 0);
  for (int i = 0; i < kDraws; ++i) ++drawn.at(zipfian.rank(random));
  // The first two are exact; the formula approaches the others.
  EXPECT_NEAR(drawn[0], kDraws / zeta, kDraws / zeta / 20);
  EXPECT_NEAR(drawn[1], kDraws / zeta * std::pow(2.0, -0.99), kDraws / zeta / 20);
  const int first_hundred = std::accumulate(drawn.begin(), drawn.begin() + 100, 0);
  double expected = 0;
  for (uint64_t i = 1; i <= 100; ++i) expected += std::pow(static_cast<double>(i), -0.99) / zeta;
  EXPECT_NEAR(first_hundred, kDraws * expected, kDraws * expected / 20);
  EXPECT_GT(std::accumulate(drawn.begin() + 500, drawn.end(), 0), 0);
}

TEST(Zipfian, OneOrTwoRanksAreChosenFrom) {
  Random random(1);
  const Zipfian one(1);
  const Zipfian two(2);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(one.rank(random), 0u);
    EXPECT_LT(two.rank(random), 2u);
  }
}

TEST(YcsbRecords, AreThereWhenAllBeforeThemAre) {
  YcsbRecords records(10);
  EXPECT_EQ(records.begin_insert(), 10u);
  EXPECT_EQ(records.begin_insert(), 11u);
  EXPECT_EQ(records.there(), 10u);
  records.end_insert(11);
  EXPECT_EQ(records.there(), 10u);
  records.end_insert(10);
  EXPECT_EQ(records.there(), 12u);
}

TEST(YcsbSteps, OperationsHaveTheSharesOfTheWorkload) {
  const Zipfian popular(100);
  YcsbRecords records(100);
  YcsbSteps steps(workload("e"), popular, records, 1);
  std::array<int, kYcsbOperations> count{};
  uint32_t shortest = UINT32_MAX;
  uint32_t longest = 0;
  for (int i = 0; i < 10'000; ++i) {
    const YcsbStep step = steps.next();
    ++count[static_cast<size_t>(step.operation)];
    if (step.operation != YcsbOperation::kScan) continue;
    EXPECT_LT(step.record, 100u);
    shortest = std::min(shortest, step.records);
    longest = std::max(longest, step.records);
  }
  EXPECT_NEAR(count[static_cast<size_t>(YcsbOperation::kInsert)], 500, 100);
  EXPECT_NEAR(count[static_cast<size_t>(YcsbOperation::kScan)], 9500, 100);
  EXPECT_EQ(shortest, 1u);
  EXPECT_EQ(longest, 100u);
}

TEST(YcsbSteps, LatestRecordIsMostPopularInD) {
  const Zipfian popular(1000);
  YcsbRecords records(1000);
  YcsbSteps steps(workload("d"), popular, records, 1);
  int latest = 0;
  int reads = 0;
  for (int i = 0; i < 2000; ++i) {
    const YcsbStep step = steps.next();
    if (step.operation == YcsbOperation::kInsert) {
      records.end_insert(step.record);
      continue;
    }
    ASSERT_LT(step.record, records.there());
    ++reads;
    latest += step.record == records.there() - 1;
  }
  EXPECT_GT(latest, reads / 10);
}

TEST(YcsbKeys, AreDifferentAndAscendingOnDemand) {
  char room[YcsbKeys::kLongest];
  for (const std::string_view name : {"a", "mixed-index"}) {
    const YcsbKeys scattered(workload(name), false);
    const YcsbKeys ascending(workload(name), true);
    std::set<std::string> all;
    std::string last;
    for (uint64_t i = 0; i < 1000; ++i) {
      all.emplace(scattered.write(i, room));
      const std::string key(ascending.write(i, room));
      EXPECT_LT(last, key);
      EXPECT_EQ(key.size(), name == "a" ? 16u : 8u);
      last = key;
    }
    EXPECT_EQ(all.size(), 1000u);
  }
}

}  // namespace
}  // namespace pmstore::tools
