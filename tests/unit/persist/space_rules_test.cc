// Reserves of kinds of extents: the arithmetic, and what a pool in memory or in a file allows.
#include "persist/space_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "persist/pool.h"
#include "tests/unit/persist/scratch.h"

namespace pmstore::persist {
namespace {

using testing::HasSubstr;

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kLeast = 256;
constexpr uint64_t kLost = 2 * kLeast;  // kLeast + kLeast / 8, so that room is a multiple of 256

SpaceRules reserve(ExtentKind kind, uint64_t bytes) {
  SpaceRules rules;
  rules.of(kind).reserve_bytes = bytes;
  return rules;
}

TEST(SpaceRulesOfAPool, AReserveOfOthersIsNotRoomAndTheOwnOneIs) {
  const std::vector<uint64_t> free = {10 * kMiB};
  const PoolSpace space{{}, free, kLeast};
  const SpaceRules rules = reserve(ExtentKind::kLog, 4 * kMiB);
  EXPECT_EQ(rules.room(ExtentKind::kRecords, space), 6 * kMiB - kLost);
  EXPECT_EQ(rules.room(ExtentKind::kFileData, space), 6 * kMiB - kLost);
  EXPECT_EQ(rules.room(ExtentKind::kLog, space), 10 * kMiB);
  EXPECT_EQ(rules.room(ExtentKind::kCheckpoint, space), 10 * kMiB);
  EXPECT_EQ(rules.room(ExtentKind::kLog, space, kMiB), 9 * kMiB - kLost) << "kept for rings";
  EXPECT_EQ(rules.room(ExtentKind::kRings, space, kMiB), 6 * kMiB - kLost) << "not from rings";
}

TEST(SpaceRulesOfAPool, WhatAKindHasCountsForItsReserve) {
  const std::vector<uint64_t> free = {10 * kMiB};
  const std::vector<Extent> extents = {{ExtentKind::kLog, 0, 3 * kMiB},
                                       {ExtentKind::kRecords, 4 * kMiB, 5 * kMiB}};
  const SpaceRules rules = reserve(ExtentKind::kLog, 4 * kMiB);
  EXPECT_EQ(rules.unused_reserve(ExtentKind::kLog, extents), kMiB);
  EXPECT_EQ(rules.unused_reserve(ExtentKind::kShardLog, extents), 0u);
  EXPECT_EQ(rules.room(ExtentKind::kRecords, {extents, free, kLeast}), 9 * kMiB - kLost);
  const SpaceRules used_up = reserve(ExtentKind::kLog, 3 * kMiB);
  EXPECT_EQ(used_up.room(ExtentKind::kRecords, {extents, free, kLeast}), 10 * kMiB);
  EXPECT_EQ(used_up.reserved_for_others(ExtentKind::kRecords, extents), "");
  EXPECT_THAT(rules.reserved_for_others(ExtentKind::kRecords, extents),
              HasSubstr("1 MiB (1048576 bytes) for log"));
  EXPECT_EQ(rules.reserved_for_others(ExtentKind::kLog, extents), "");
}

TEST(SpaceRulesOfAPool, OnePieceStaysAsLargeAsTheLargestReserve) {
  const SpaceRules rules = reserve(ExtentKind::kLog, 8 * kMiB);
  const std::vector<uint64_t> one_large = {2 * kMiB, 9 * kMiB, 3 * kMiB};
  EXPECT_EQ(rules.room(ExtentKind::kRecords, {{}, one_large, kLeast}), 3 * kMiB)
      << "a piece that was freed is room, the large one is not";
  const std::vector<uint64_t> two_large = {9 * kMiB, 8 * kMiB};
  EXPECT_EQ(rules.room(ExtentKind::kRecords, {{}, two_large, kLeast}), 9 * kMiB - kLost);
  const std::vector<uint64_t> small = {4 * kMiB, 4 * kMiB, 4 * kMiB};
  EXPECT_EQ(rules.room(ExtentKind::kRecords, {{}, small, kLeast}), 4 * kMiB - kLost)
      << "a reserve may be larger than any piece";
  const std::vector<uint64_t> less = {2 * kMiB, kMiB};
  EXPECT_EQ(rules.room(ExtentKind::kRecords, {{}, less, kLeast}), 0u);
}

// The example of docs/pool.md.
TEST(SpaceRulesOfAPool, PiecesOfAPoolFile) {
  constexpr uint64_t kLeastOfAFile = 5 * kMiB / 2;
  const SpaceRules rules = reserve(ExtentKind::kLog, 8 * kMiB);
  const std::vector<uint64_t> before = {3 * kMiB, 9 * kMiB, 4 * kMiB};
  EXPECT_EQ(rules.room(ExtentKind::kRecords, {{}, before, kLeastOfAFile}), 4 * kMiB);
  const std::vector<uint64_t> after = {3 * kMiB, 9 * kMiB};
  EXPECT_EQ(rules.room(ExtentKind::kRecords, {{}, after, kLeastOfAFile}), 0u);
  EXPECT_EQ(rules.room(ExtentKind::kLog, {{}, after, kLeastOfAFile}), 9 * kMiB);
}

TEST(SpaceRulesOfAPool, LessThanTheLeastExtentIsNoRoom) {
  const SpaceRules rules = reserve(ExtentKind::kLog, 4 * kMiB);
  const std::vector<uint64_t> free = {7 * kMiB};
  EXPECT_EQ(rules.room(ExtentKind::kRecords, {{}, free, 2 * kMiB}), 0u);
}

// Without rings clients cannot delete, so no reserve may keep the first ones away.
TEST(SpaceRulesOfAPool, TheFirstRingsTakeWhatOthersHaveReserved) {
  SpaceRules rules = reserve(ExtentKind::kRecords, 20 * kMiB);
  rules.leave_first_rings(2 * kMiB);
  const std::vector<uint64_t> free = {kMiB, 10 * kMiB};
  EXPECT_EQ(rules.room(ExtentKind::kRings, {{}, free, kLeast}), 2 * kMiB) << "and not more";
  EXPECT_EQ(rules.room(ExtentKind::kLog, {{}, free, kLeast}), 0u);
  const std::vector<uint64_t> small = {kMiB, kMiB / 2};
  EXPECT_EQ(rules.room(ExtentKind::kRings, {{}, small, kLeast}), kMiB);
  const std::vector<Extent> extents = {{ExtentKind::kRings, 0, kLeast}};
  EXPECT_EQ(rules.room(ExtentKind::kRings, {extents, free, kLeast}), 0u) << "there are some";
  rules.leave_first_rings(0);
  EXPECT_EQ(rules.room(ExtentKind::kRings, {{}, free, kLeast}), 0u) << "a pool without rings";
}

TEST(SpaceRulesOfAPool, OthersLeaveOnePieceToTheFirstRingsBesideTheLargestReserve) {
  constexpr uint64_t kLeastOfAFile = 5 * kMiB / 2;
  constexpr uint64_t kLostInAFile = kLeastOfAFile + kLeastOfAFile / 8;
  constexpr uint64_t kFirst = 6 * kMiB;
  SpaceRules rules = reserve(ExtentKind::kLog, 40 * kMiB);
  rules.leave_first_rings(kFirst);
  const std::vector<uint64_t> one = {60 * kMiB};
  EXPECT_EQ(rules.room(ExtentKind::kRecords, {{}, one, kLeastOfAFile}),
            14 * kMiB - 2 * kLostInAFile);
  const std::vector<uint64_t> left = {46 * kMiB + kLostInAFile};
  EXPECT_EQ(rules.room(ExtentKind::kRecords, {{}, left, kLeastOfAFile}), 0u);
  EXPECT_EQ(rules.room(ExtentKind::kLog, {{}, left, kLeastOfAFile}), 40 * kMiB) << "all of it";
  // Small pieces have together what rings take, and none of them has room for rings.
  const std::vector<uint64_t> pieces = {47 * kMiB, 3 * kMiB, 3 * kMiB, 3 * kMiB};
  EXPECT_EQ(rules.room(ExtentKind::kRecords, {{}, pieces, kLeastOfAFile}), 3 * kMiB);
  const std::vector<uint64_t> after = {40 * kMiB, 3 * kMiB, 3 * kMiB, 3 * kMiB};
  EXPECT_EQ(rules.room(ExtentKind::kRings, {{}, after, kLeastOfAFile}), kFirst);
  EXPECT_EQ(rules.room(ExtentKind::kLog, {{}, after, kLeastOfAFile}), 34 * kMiB - kLostInAFile);
  // As soon as there are rings, nothing is left to others.
  const std::vector<Extent> extents = {{ExtentKind::kRings, 0, 256 << 10}};
  EXPECT_EQ(rules.unused_reserve(ExtentKind::kRings, {}), kFirst);
  EXPECT_EQ(rules.unused_reserve(ExtentKind::kRings, extents), 0u);
  EXPECT_EQ(rules.room(ExtentKind::kLog, {extents, after, kLeastOfAFile}), 40 * kMiB);
}

TEST(SpaceRulesOfAPool, WhatDoesNotFitIsRefused) {
  SpaceRules rules = reserve(ExtentKind::kLog, 6 * kMiB);
  rules.of(ExtentKind::kRecords).reserve_bytes = 4 * kMiB;
  EXPECT_TRUE(rules.check(10 * kMiB));
  const Status too_much = rules.check(10 * kMiB - 1);
  EXPECT_EQ(too_much.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(too_much.error().message, HasSubstr("more than the pool together"));
  rules.of(ExtentKind::kFileData).reserve_bytes = UINT64_MAX;
  EXPECT_FALSE(rules.check(10 * kMiB)) << "the sum does not wrap";
  rules = reserve(ExtentKind::kLog, 6 * kMiB);
  rules.of(ExtentKind::kLog).limit_bytes = 6 * kMiB;
  EXPECT_TRUE(rules.check(10 * kMiB));
  rules.of(ExtentKind::kLog).limit_bytes = 6 * kMiB - 1;
  const Status limited = rules.check(10 * kMiB);
  EXPECT_EQ(limited.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(limited.error().message, HasSubstr("--log-limit, or a lower --log-reserve"));
}

// ---- pools ----

struct Tried {
  const char* name;
  uint64_t bytes;
  uint64_t most_extent;
  bool in_file;
};

class SpaceRulesInUse : public testing::TestWithParam<Tried> {
 protected:
  SpaceRulesInUse()
      : region_bytes_(GetParam().in_file ? 4096 : GetParam().bytes),
        region_(std::aligned_alloc(4096, region_bytes_)) {
    std::memset(region_, 0, region_bytes_);
    PoolOpenOptions with;
    with.assume_domain = Domain::kMemoryController;
    with.sparse = true;
    pool_ = GetParam().in_file ? Pool::create(scratch_.path("pool"), GetParam().bytes, with).value()
                               : Pool::in_region({static_cast<std::byte*>(region_), region_bytes_},
                                                 Domain::kMemoryController, true)
                                     .value();
  }
  ~SpaceRulesInUse() override {
    pool_.reset();
    std::free(region_);
  }
  uint64_t used(ExtentKind kind) {
    uint64_t bytes = 0;
    for (const Extent& extent : pool_->info().extents) {
      if (extent.kind == kind) bytes += extent.bytes;
    }
    return bytes;
  }
  // Takes what room_for() promises until there is none.
  void take_all(ExtentKind kind) {
    for (uint64_t room = pool_->room_for(kind); room > 0; room = pool_->room_for(kind)) {
      const auto made = pool_->allocate_extent(kind, std::min(room, GetParam().most_extent));
      ASSERT_TRUE(made) << made.error().to_string();
    }
  }
  const Scratch scratch_;
  size_t region_bytes_;
  void* region_;
  std::unique_ptr<Pool> pool_;
};

INSTANTIATE_TEST_SUITE_P(Pools, SpaceRulesInUse,
                         testing::Values(Tried{"region", 8 << 20, 256 << 10, false},
                                         Tried{"file", 512 << 20, 24 << 20, true}),
                         [](const auto& tried) { return tried.param.name; });

TEST_P(SpaceRulesInUse, OthersFillThePoolUpToAReserveAndItsKindHasIt) {
  const uint64_t bytes = GetParam().bytes / 4;
  pool_->set_space_rules(reserve(ExtentKind::kLog, bytes));
  ASSERT_NO_FATAL_FAILURE(take_all(ExtentKind::kRecords));
  const auto refused = pool_->allocate_extent(ExtentKind::kFileData, bytes / 2);
  ASSERT_EQ(refused.code(), ErrorCode::kFull);
  EXPECT_THAT(refused.error().message, HasSubstr("of the free space is reserved"));
  EXPECT_THAT(refused.error().message, HasSubstr("for log: free other space, or lower"));
  EXPECT_EQ(refused.error().message.find('\n'), std::string::npos);
  EXPECT_GE(pool_->largest_free_extent(), bytes) << "in one piece";
  const auto whole = pool_->allocate_extent(ExtentKind::kLog, bytes);
  ASSERT_TRUE(whole) << whole.error().to_string();
  // It is used up now: the rest is everybody's, and what is freed is reserved again.
  EXPECT_EQ(pool_->room_for(ExtentKind::kRecords), pool_->largest_free_extent());
  ASSERT_TRUE(pool_->free_extent(*whole));
  EXPECT_EQ(pool_->room_for(ExtentKind::kRecords), 0u);
  pool_->set_space_rules({});
  EXPECT_EQ(pool_->room_for(ExtentKind::kRecords), pool_->largest_free_extent());
}

TEST_P(SpaceRulesInUse, WhatOneKindFreesAnotherOneGets) {
  pool_->set_space_rules(reserve(ExtentKind::kLog, GetParam().bytes / 4));
  ASSERT_NO_FATAL_FAILURE(take_all(ExtentKind::kRecords));
  const Extent freed = pool_->info().extents[1];
  ASSERT_TRUE(pool_->free_extent(freed));
  EXPECT_GE(pool_->room_for(ExtentKind::kFileData) + 2 * pool_->least_extent(), freed.bytes);
  ASSERT_NO_FATAL_FAILURE(take_all(ExtentKind::kFileData));
  EXPECT_GE(used(ExtentKind::kFileData) + 2 * pool_->least_extent(), freed.bytes);
}

// With random reserves, while extents of all kinds are made and freed at random.
TEST_P(SpaceRulesInUse, TheFirstRingsAlwaysHaveRoom) {
  std::mt19937_64 random(11);
  const uint64_t pool_bytes = GetParam().bytes;
  const uint64_t rings = pool_bytes / 64;
  SpaceRules rules;
  rules.of(ExtentKind::kLog).reserve_bytes = pool_bytes / 3;
  rules.of(ExtentKind::kRecords).reserve_bytes = pool_bytes / 2;
  rules.leave_first_rings(std::max(rings, pool_->least_extent()) + pool_->least_extent() / 8);
  pool_->set_space_rules(rules);
  size_t refused = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto& extents = pool_->info().extents;
    if (extents.size() > 50 || (!extents.empty() && random() % 3 == 0)) {
      ASSERT_TRUE(pool_->free_extent(Extent(extents[random() % extents.size()])));
    } else {
      constexpr ExtentKind kOthers[] = {ExtentKind::kRecords, ExtentKind::kLog,
                                        ExtentKind::kFileData};
      const ExtentKind kind = kOthers[random() % std::size(kOthers)];
      const uint64_t bytes = round_up(1 + random() % GetParam().most_extent, 256);
      refused += !pool_->allocate_extent(kind, std::max(bytes, pool_->room_for(kind) / 2));
    }
    const auto first = pool_->allocate_extent(ExtentKind::kRings, rings);
    ASSERT_TRUE(first) << first.error().to_string();
    ASSERT_TRUE(pool_->free_extent(*first));
  }
  EXPECT_GT(refused, 20u);
}

// The promise of SpaceRules::room(), whatever is taken and freed.
TEST_P(SpaceRulesInUse, FreeSpaceIsNeverLessThanTheUnusedReserves) {
  std::mt19937_64 random(7);
  const uint64_t pool_bytes = GetParam().bytes;
  SpaceRules rules;
  rules.of(ExtentKind::kLog).reserve_bytes = pool_bytes / 5;
  rules.of(ExtentKind::kFileData).reserve_bytes = pool_bytes / 8;
  rules.of(ExtentKind::kRings).reserve_bytes = pool_bytes / 40;
  pool_->set_space_rules(rules);
  size_t refused = 0;
  size_t made = 0;
  for (int i = 0; i < 1500; ++i) {
    const auto& extents = pool_->info().extents;
    if (extents.size() > 50 || (!extents.empty() && random() % 3 == 0)) {
      ASSERT_TRUE(pool_->free_extent(Extent(extents[random() % extents.size()])));
      continue;
    }
    const ExtentKind kind = SpaceRules::kKinds[random() % SpaceRules::kKinds.size()];
    const uint64_t bytes = round_up(1 + random() % GetParam().most_extent, 256);
    const uint64_t room = pool_->room_for(kind);
    const uint64_t largest = pool_->largest_free_extent();
    const auto extent = pool_->allocate_extent(kind, bytes);
    ASSERT_EQ(extent.has_value(), std::max(bytes, pool_->least_extent()) <= room)
        << bytes << " of " << room;
    if (!extent) {
      ++refused;
      continue;
    }
    ++made;
    uint64_t free = 0;
    for (const uint64_t each : pool_->free_extents()) free += each;
    uint64_t unused = 0;
    uint64_t most = 0;
    for (const ExtentKind other : SpaceRules::kKinds) {
      if (other == kind) continue;
      const uint64_t of_other = rules.unused_reserve(other, pool_->info().extents);
      unused += of_other;
      most = std::max(most, of_other);
    }
    ASSERT_GE(free, unused) << "behind an extent of " << extent_name(kind);
    ASSERT_GE(pool_->largest_free_extent(), std::min(largest, most));
  }
  EXPECT_GT(refused, 20u);
  EXPECT_GT(made, 100u);
}

}  // namespace
}  // namespace pmstore::persist
