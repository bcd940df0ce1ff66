#include "model/last_level_cache.h"

#include <gtest/gtest.h>

#include <set>

namespace pmstore::model {
namespace {

// One set of four ways, two of them for devices.
LlcParameters one_set(double second_oldest) {
  LlcParameters p;
  p.kib = 4 * 64 / 1024.0;
  p.ways = 4;
  p.ddio_ways = 2;
  p.second_oldest = second_oldest;
  return p;
}

Line line(uint64_t number) { return Line(Medium::kNvm, 0, number * kCacheLineBytes); }

TEST(ModelLine, AddressMediumAndSocketAreInTheName) {
  const Line a(Medium::kNvm, 3, (uint64_t{1} << 46) + 200);
  EXPECT_EQ(a.address(), (uint64_t{1} << 46) + 192);
  EXPECT_EQ(a.medium(), Medium::kNvm);
  EXPECT_EQ(a.socket(), 3u);
  EXPECT_EQ(a.next().address(), a.address() + 64);
  EXPECT_EQ(Line(Medium::kDram, 3, 64).medium(), Medium::kDram);
}

TEST(ModelLastLevelCache, TheLeastRecentlyUsedLineGoes) {
  LastLevelCache cache(one_set(0), 1);
  for (uint64_t i = 0; i < 4; ++i) EXPECT_FALSE(cache.insert(line(i), 1).valid);
  ASSERT_NE(cache.find(line(0)), nullptr);
  EXPECT_EQ(cache.insert(line(4), 1).name, line(1).name());
  EXPECT_EQ(cache.insert(line(5), 1).name, line(2).name());
  EXPECT_NE(cache.find(line(0)), nullptr);
  EXPECT_EQ(cache.find(line(1)), nullptr);
}

TEST(ModelLastLevelCache, DevicesUseTheirWaysOnly) {
  LastLevelCache cache(one_set(0), 1);
  for (uint64_t i = 0; i < 4; ++i) cache.insert(line(i), 1);  // ways 0 to 3
  for (uint64_t i = 10; i < 20; ++i) cache.insert(line(i), LastLevelCache::kDevice);
  EXPECT_NE(cache.find(line(2)), nullptr);
  EXPECT_NE(cache.find(line(3)), nullptr);
  EXPECT_NE(cache.find(line(18)), nullptr);
  EXPECT_NE(cache.find(line(19)), nullptr);
  EXPECT_EQ(cache.find(line(17)), nullptr);
}

TEST(ModelLastLevelCache, ALineTakenOutMakesRoom) {
  LastLevelCache cache(one_set(0), 1);
  for (uint64_t i = 0; i < 4; ++i) cache.insert(line(i), 1);
  cache.find(line(2))->dirty = 1;
  EXPECT_TRUE(cache.take_out(line(2)).dirty);
  EXPECT_FALSE(cache.take_out(line(2)).valid);
  EXPECT_FALSE(cache.insert(line(9), 1).valid);
}

TEST(ModelLastLevelCache, AShareOfVictimsIsTheSecondOldestAndTheSameForTheSameSeed) {
  const auto victims = [](uint64_t seed) {
    LastLevelCache cache(one_set(0.5), seed);
    std::vector<uint64_t> gone;
    for (uint64_t i = 0; i < 1000; ++i) gone.push_back(cache.insert(line(i), 1).name);
    return gone;
  };
  EXPECT_EQ(victims(1), victims(1));
  EXPECT_NE(victims(1), victims(2));
  // The line that goes came three or four insertions ago, or was passed over since.
  const auto gone = victims(1);
  int second = 0;
  for (uint64_t i = 4; i < 1000; ++i) {
    EXPECT_LE(gone[i], line(i - 3).name());
    second += gone[i] == line(i - 3).name();
  }
  EXPECT_NEAR(second, 500, 60);
}

TEST(ModelLastLevelCache, CleaningGivesEveryDirtyLineOnce) {
  LastLevelCache cache(one_set(0), 1);
  for (uint64_t i = 0; i < 4; ++i) cache.insert(line(i), 1);
  cache.find(line(1))->dirty = 1;
  cache.find(line(3))->dirty = 1;
  std::set<uint64_t> cleaned;
  cache.clean_all([&](Line l) { cleaned.insert(l.name()); });
  EXPECT_EQ(cleaned, (std::set{line(1).name(), line(3).name()}));
  cache.clean_all([&](Line) { FAIL() << "all are clean"; });
}

}  // namespace
}  // namespace pmstore::model
