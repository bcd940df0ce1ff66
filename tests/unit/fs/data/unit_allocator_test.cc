#include "fs/unit_allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/random.h"

namespace pmstore::fs {
namespace {

using Units = UnitAllocator::Run;

TEST(UnitAllocator, AllIsFreeAtFirst) {
  UnitAllocator units(100);
  EXPECT_EQ(units.free_units(), 100u);
  EXPECT_EQ(units.runs(), 1u);
  EXPECT_EQ(units.largest_run(), 100u);
  EXPECT_EQ(units.allocate(1, 100), (Units{0, 100}));
  EXPECT_EQ(units.allocate(1, 1), std::nullopt);
  EXPECT_EQ(units.largest_run(), 0u);
}

TEST(UnitAllocator, TheSmallestRunThatHasAllIsTaken) {
  UnitAllocator units(100);
  EXPECT_TRUE(units.claim({10, 1}));  // runs of 10, 19 and 69
  EXPECT_TRUE(units.claim({30, 1}));
  EXPECT_EQ(units.allocate(1, 12), (Units{11, 12}));
  EXPECT_EQ(units.allocate(1, 8), (Units{0, 8}));
  EXPECT_EQ(units.allocate(1, 60), (Units{31, 60}));
}

TEST(UnitAllocator, WithoutOneThatHasAllTheLargestDoes) {
  UnitAllocator units(100);
  EXPECT_TRUE(units.claim({40, 10}));
  EXPECT_EQ(units.allocate(51, 80), std::nullopt);
  EXPECT_EQ(units.allocate(50, 80), (Units{50, 50}));
  EXPECT_EQ(units.allocate(1, 80), (Units{0, 40}));
}

TEST(UnitAllocator, NothingIsClaimedTwiceOrOutside) {
  UnitAllocator units(100);
  EXPECT_TRUE(units.claim({20, 10}));
  EXPECT_FALSE(units.claim({20, 10}));
  EXPECT_FALSE(units.claim({19, 2}));
  EXPECT_FALSE(units.claim({29, 2}));
  EXPECT_FALSE(units.claim({10, 30}));
  EXPECT_FALSE(units.claim({0, 0}));
  EXPECT_FALSE(units.claim({100, 1}));
  EXPECT_FALSE(units.claim({99, 2}));
  EXPECT_FALSE(units.claim({1, UINT64_MAX}));
  EXPECT_FALSE(units.claim({UINT64_MAX, 1}));
  EXPECT_EQ(units.free_units(), 90u);
  EXPECT_TRUE(units.claim({19, 1}));
  EXPECT_TRUE(units.claim({30, 70}));
}

TEST(UnitAllocator, WhatIsReleasedJoinsItsNeighbours) {
  UnitAllocator units(100);
  EXPECT_TRUE(units.claim({0, 100}));
  units.release({10, 10});
  units.release({30, 10});
  EXPECT_EQ(units.runs(), 2u);
  units.release({20, 10});
  EXPECT_EQ(units.runs(), 1u);
  EXPECT_EQ(units.allocate(30, 30), (Units{10, 30}));
}

TEST(UnitAllocatorDeathTest, FreeUnitsAreNotReleased) {
  UnitAllocator units(100);
  EXPECT_TRUE(units.claim({10, 10}));
  EXPECT_DEATH(units.release({15, 10}), "given away twice");
  EXPECT_DEATH(units.release({0, 1}), "given away twice");
}

// Against one flag for each unit.
TEST(UnitAllocator, AgreesWithAPlainMapOfFlags) {
  constexpr uint64_t kUnits = 300;
  base::Random random(1);
  UnitAllocator units(kUnits);
  std::vector<bool> taken(kUnits);
  std::vector<Units> held;
  const auto mark = [&](const Units& run, bool value) {
    for (uint64_t i = run.first; i < run.first + run.units; ++i) {
      ASSERT_NE(taken[i], value);
      taken[i] = value;
    }
  };
  for (int step = 0; step < 20'000; ++step) {
    const uint64_t most = 1 + random.below(20);
    if (random.below(2) == 0) {
      if (const auto run = units.allocate(1 + random.below(most), most)) {
        mark(*run, true);
        held.push_back(*run);
      }
    } else if (!held.empty()) {
      const size_t which = random.below(held.size());
      const Units run = held[which];
      const Units front{run.first, 1 + random.below(run.units)};
      units.release(front);
      mark(front, false);
      held[which] = {front.first + front.units, run.units - front.units};
      if (held[which].units == 0) held.erase(held.begin() + static_cast<ptrdiff_t>(which));
    }
    const uint64_t at = random.below(kUnits);
    const Units probe{at, 1 + random.below(kUnits - at)};
    bool all_taken = true;
    for (uint64_t i = 0; i < probe.units; ++i) all_taken = all_taken && taken[at + i];
    ASSERT_EQ(units.is_taken(probe), all_taken);
    const auto in_use = static_cast<uint64_t>(std::count(taken.begin(), taken.end(), true));
    ASSERT_EQ(units.free_units(), kUnits - in_use);
  }
}

TEST(UnitAllocator, RunsThatWereAddedAreHandedOutAndGoAsAWhole) {
  UnitAllocator units(10);
  units.add({100, 20});
  EXPECT_EQ(units.units(), 30u);
  EXPECT_EQ(units.free_units(), 30u);
  EXPECT_TRUE(units.is_taken({10, 90})) << "no unit has these numbers";
  EXPECT_FALSE(units.claim({5, 100})) << "nor do they connect two runs";
  const auto run = units.allocate(15, 15);
  ASSERT_EQ(run, (Units{100, 15}));
  EXPECT_FALSE(units.is_free_run({100, 20}));
  units.release(*run);
  ASSERT_TRUE(units.is_free_run({100, 20}));
  units.remove({100, 20});
  EXPECT_EQ(units.units(), 10u);
  EXPECT_EQ(units.free_units(), 10u);
  EXPECT_EQ(units.allocate(15, 15), std::nullopt);
  EXPECT_FALSE(units.claim({100, 1}));
  units.add({200, 15});
  EXPECT_EQ(units.allocate(15, 15), (Units{200, 15}));
}

}  // namespace
}  // namespace pmstore::fs
