#include "base/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/random.h"

namespace pmstore::base {
namespace {

constexpr double kQuantiles[] = {0.0, 0.001, 0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 0.9999, 1.0};

// The definition: the smallest record at or below which a share q of all records lies.
uint64_t exact_quantile(const std::vector<uint64_t>& sorted, double q) {
  const auto rank = static_cast<size_t>(std::ceil(q * static_cast<double>(sorted.size())));
  return sorted[rank == 0 ? 0 : rank - 1];
}

void expect_close_to_exact(std::vector<uint64_t> values) {
  Histogram histogram;
  for (const uint64_t value : values) histogram.record(value);
  std::sort(values.begin(), values.end());
  for (const double q : kQuantiles) {
    const uint64_t exact = exact_quantile(values, q);
    const uint64_t given = histogram.quantile(q);
    EXPECT_GE(given, exact) << "q " << q;
    EXPECT_LE(static_cast<double>(given - exact), static_cast<double>(exact) * 0.016) << "q " << q;
  }
  EXPECT_EQ(histogram.count(), values.size());
  EXPECT_EQ(histogram.min(), values.front());
  EXPECT_EQ(histogram.max(), values.back());
}

TEST(Histogram, EmptyGivesZeros) {
  Histogram histogram;
  EXPECT_EQ(histogram.count(), 0u);
  EXPECT_EQ(histogram.min(), 0u);
  EXPECT_EQ(histogram.max(), 0u);
  EXPECT_EQ(histogram.mean(), 0.0);
  EXPECT_EQ(histogram.quantile(0.5), 0u);
}

TEST(Histogram, OneValueIsEveryQuantileExactly) {
  for (const uint64_t value : {uint64_t{0}, uint64_t{1}, uint64_t{63}, uint64_t{64}, uint64_t{65},
                               uint64_t{1'000'003}, UINT64_MAX - 1, UINT64_MAX}) {
    Histogram histogram;
    histogram.record(value);
    for (const double q : kQuantiles) EXPECT_EQ(histogram.quantile(q), value) << "q " << q;
  }
}

TEST(Histogram, SmallValuesAreExact) {
  Histogram histogram;
  for (uint64_t value = 0; value < 64; ++value) histogram.record(value);
  for (int percent = 1; percent <= 100; ++percent) {
    const auto exact = static_cast<uint64_t>(std::ceil(percent / 100.0 * 64)) - 1;
    EXPECT_EQ(histogram.quantile(percent / 100.0), exact) << percent << "%";
  }
}

TEST(Histogram, QuantilesOfUniformValuesAreWithinTheBound) {
  Random random(1);
  std::vector<uint64_t> values(20'000);
  for (auto& value : values) value = random.below(1'000'000);
  expect_close_to_exact(values);
}

TEST(Histogram, QuantilesOfValuesOfEveryMagnitudeAreWithinTheBound) {
  Random random(2);
  std::vector<uint64_t> values(50'000);
  for (auto& value : values) value = random.next() >> random.below(64);
  values.push_back(0);
  values.push_back(UINT64_MAX);
  expect_close_to_exact(values);
}

TEST(Histogram, BucketEdgesAreWithinTheBound) {
  std::vector<uint64_t> values;
  for (int power = 0; power < 64; ++power) {
    const uint64_t edge = uint64_t{1} << power;
    values.insert(values.end(), {edge - 1, edge, edge + 1});
  }
  expect_close_to_exact(values);
}

TEST(Histogram, MergeEqualsRecordingEverythingInOne) {
  Random random(3);
  Histogram left, right, both;
  for (int i = 0; i < 5'000; ++i) {
    const uint64_t value = random.next() >> random.below(64);
    (i % 3 == 0 ? left : right).record(value);
    both.record(value);
  }
  left.merge(right);
  EXPECT_EQ(left.count(), both.count());
  EXPECT_EQ(left.min(), both.min());
  EXPECT_EQ(left.max(), both.max());
  EXPECT_EQ(left.mean(), both.mean());
  for (const double q : kQuantiles) EXPECT_EQ(left.quantile(q), both.quantile(q)) << "q " << q;
  const Histogram empty;
  left.merge(empty);
  EXPECT_EQ(left.min(), both.min());
  EXPECT_EQ(left.count(), both.count());
}

TEST(Histogram, MeanIsExact) {
  Histogram histogram;
  for (const uint64_t value : {10, 20, 60}) histogram.record(value);
  EXPECT_DOUBLE_EQ(histogram.mean(), 30.0);
}

}  // namespace
}  // namespace pmstore::base
