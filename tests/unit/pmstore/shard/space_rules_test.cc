// The reserves and limits that a pool keeps: durable at once or not at all, and what records leave
// to others.
#include "pmstore/space_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "persist/kept_space_rules.h"
#include "persist/space_layout.h"
#include "pmstore/check.h"
#include "tests/crash/crash_image.h"
#include "tests/unit/pmstore/shard/record_frames_fixture.h"

namespace pmstore::internal {
namespace {

using namespace small_frames;
using persist::ExtentKind;
using persist::kSpaceCopyBytes;
using persist::kSpaceOffset;
using persist::SpaceHeader;
using persist::SpaceRules;
using testing::HasSubstr;

constexpr uint64_t kRegion = 4 << 20;

SpaceRules some_rules(uint64_t bytes) {
  SpaceRules rules;
  rules.of(ExtentKind::kRecords) = {bytes, 2 * bytes};
  rules.of(ExtentKind::kRings).reserve_bytes = bytes + 1;
  rules.of(ExtentKind::kLog) = {bytes + 2, UINT64_MAX};
  rules.of(ExtentKind::kFileData).limit_bytes = bytes + 3;
  return rules;
}

std::byte* copy_in(persist::Pool& pool, uint64_t copy) {
  return pool.root().data() + kSpaceOffset + copy * kSpaceCopyBytes;
}

TEST(KeptSpaceRules, APoolHasNoneUntilTheyAreSetAndThenTheLastOnes) {
  StoreInRegion s(kRegion, in_frames());
  EXPECT_EQ(load_space_rules(s.pool()).value(), SpaceRules());
  for (uint64_t i = 1; i < 6; ++i) {
    ASSERT_TRUE(keep_space_rules(s.pool(), some_rules(i << 10)));
    EXPECT_EQ(load_space_rules(s.pool()).value(), some_rules(i << 10));
    s.reopen();
    EXPECT_EQ(load_space_rules(s.pool()).value(), some_rules(i << 10));
  }
  EXPECT_TRUE(check_store(s.pool())->sound());
}

TEST(KeptSpaceRules, TheRoomOfTheFirstRingsIsNotCalledAReserve) {
  SpaceRules rules;
  rules.leave_first_rings(3 << 20);
  EXPECT_EQ(rules.reserved_for_others(ExtentKind::kLog, {}), "");
  rules.of(ExtentKind::kRecords).reserve_bytes = 1 << 20;
  EXPECT_THAT(rules.reserved_for_others(ExtentKind::kLog, {}), HasSubstr("for records"));
}

TEST(KeptSpaceRules, ThatDoNotFitChangeNothing) {
  StoreInRegion s(kRegion, in_frames());
  ASSERT_TRUE(keep_space_rules(s.pool(), some_rules(1024)));
  EXPECT_EQ(keep_space_rules(s.pool(), some_rules(kRegion)).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(write_space_rules(s.pool(), some_rules(kRegion)).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(load_space_rules(s.pool()).value(), some_rules(1024));
}

TEST(KeptSpaceRules, EitherCopyIsEnoughAndDamageToBothIsSaidAndMended) {
  StoreInRegion s(kRegion, in_frames());
  for (int times = 1; times < 3; ++times) {
    const SpaceRules rules = some_rules(1024 * static_cast<uint64_t>(times));
    ASSERT_TRUE(keep_space_rules(s.pool(), rules));
    for (const uint64_t copy : {0, 1}) {
      for (size_t byte = 0; byte < sizeof(SpaceHeader); ++byte) {
        copy_in(s.pool(), copy)[byte] ^= std::byte{1};
        EXPECT_EQ(load_space_rules(s.pool()).value(), rules) << copy << " " << byte;
        copy_in(s.pool(), copy)[byte] ^= std::byte{1};
      }
    }
  }
  copy_in(s.pool(), 0)[20] ^= std::byte{1};
  copy_in(s.pool(), 1)[30] ^= std::byte{1};
  const auto damaged = load_space_rules(s.pool());
  ASSERT_EQ(damaged.code(), ErrorCode::kBadPool);
  EXPECT_THAT(damaged.error().message, HasSubstr("set them again (pmstore pool limit)"));
  EXPECT_FALSE(check_store(s.pool())->sound());
  EXPECT_TRUE(check_startable(s.pool())) << "the command that mends them opens the pool so";
  ASSERT_TRUE(keep_space_rules(s.pool(), some_rules(2048)));
  EXPECT_EQ(load_space_rules(s.pool()).value(), some_rules(2048));
  EXPECT_TRUE(check_store(s.pool())->sound());
}

class KeptSpaceRulesAtACrash : public testing::TestWithParam<persist::Domain> {};

INSTANTIATE_TEST_SUITE_P(Domains, KeptSpaceRulesAtACrash,
                         testing::Values(persist::Domain::kNone, persist::Domain::kMemoryController,
                                         persist::Domain::kCpuCache),
                         [](const auto& tested) {
                           return std::string(persist::domain_name(tested.param));
                         });

TEST_P(KeptSpaceRulesAtACrash, AreThoseOfBeforeOrTheNewOnes) {
  constexpr uint64_t kTimes = 4;
  const auto rules_of = [](uint64_t times) {
    return times == 0 ? SpaceRules() : some_rules(times << 10);
  };
  StoreInRegion s(2 << 20, {2, 64 << 10}, GetParam());
  crash::PageBytes copy(2 << 20);
  crash::CrashRecorder recorder(s.pool().memory());
  for (uint64_t times = 1; times <= kTimes; ++times) {
    ASSERT_TRUE(keep_space_rules(s.pool(), rules_of(times)));
    recorder.mark();
  }
  crash::CrashSearch search;
  const auto wrong = search.run(
      recorder.take(), [&](crash::CrashImage& image, size_t marks) -> std::optional<std::string> {
        auto pool = persist::Pool::in_region(image.bytes(), GetParam(), false);
        if (!pool) return pool.error().to_string();
        const auto found = load_space_rules(**pool);
        if (!found) return found.error().to_string();
        const bool before = *found == rules_of(marks);
        const bool after = marks < kTimes && *found == rules_of(marks + 1);
        if (!before && !after) return "rules of no time, behind " + std::to_string(marks);
        // The next ones replace whatever a crash has left; not in the image, which is used again.
        std::memcpy(copy.bytes().data(), image.bytes().data(), image.bytes().size());
        pool = persist::Pool::in_region(copy.bytes(), GetParam(), false);
        if (const Status kept = keep_space_rules(**pool, some_rules(77)); !kept) {
          return kept.error().to_string();
        }
        const auto next = load_space_rules(**pool);
        if (!next || *next != some_rules(77)) return "the next rules are not kept";
        return std::nullopt;
      });
  EXPECT_EQ(wrong, std::nullopt) << *wrong;
  EXPECT_GT(search.images_seen, 10u);
}

// A process has died between its stores and their flush.
TEST(KeptSpaceRules, WhatIsOnlyInTheCachesIsDurableBeforeTheOtherCopyIsOverwritten) {
  std::vector<std::byte> next(sizeof(SpaceHeader));
  {
    StoreInRegion s(2 << 20, {2, 64 << 10});
    ASSERT_TRUE(keep_space_rules(s.pool(), some_rules(1024)));
    ASSERT_TRUE(keep_space_rules(s.pool(), some_rules(2048)));
    std::memcpy(next.data(), copy_in(s.pool(), 1), next.size());
  }
  StoreInRegion s(2 << 20, {2, 64 << 10});
  ASSERT_TRUE(keep_space_rules(s.pool(), some_rules(1024)));
  crash::CrashRecorder recorder(s.pool().memory());
  s.pool().memory().store(copy_in(s.pool(), 1), next.data(), next.size());
  ASSERT_EQ(load_space_rules(s.pool()).value(), some_rules(2048));
  ASSERT_TRUE(keep_space_rules(s.pool(), some_rules(4096)));
  crash::CrashSearch search;
  const auto wrong = search.run(
      recorder.take(), [&](crash::CrashImage& image, size_t) -> std::optional<std::string> {
        auto pool = persist::Pool::in_region(image.bytes(), s.pool().info().domain, false);
        if (!pool) return pool.error().to_string();
        const auto found = load_space_rules(**pool);
        if (!found) return found.error().to_string();
        for (const uint64_t bytes : {1024, 2048, 4096}) {
          if (*found == some_rules(bytes)) return std::nullopt;
        }
        return "rules of no time";
      });
  EXPECT_EQ(wrong, std::nullopt) << *wrong;
}

// ---- records ----

TEST(RecordsBesideReserves, FillThePoolUpToThemAndSayWhoHasReserved) {
  StoreInRegion s(kRegion, in_frames());
  SpaceRules rules;
  rules.of(ExtentKind::kLog).reserve_bytes = 1 << 20;
  s.pool().set_space_rules(rules);
  const int count = fill_up(s);
  const auto refused = s.put("more", value_of(0));
  ASSERT_EQ(refused.code(), ErrorCode::kFull);
  EXPECT_THAT(refused.error().message,
              HasSubstr("of what is free is reserved 1 MiB (1048576 bytes) for log: delete "
                        "records, or lower the reserve"));
  EXPECT_EQ(refused.error().message.find('\n'), std::string::npos);
  EXPECT_TRUE(s.put(key_of(0), value_of(0))) << "in its place";
  const auto log = s.pool().allocate_extent(ExtentKind::kLog, 1 << 20);
  ASSERT_TRUE(log) << log.error().to_string();
  expect_there(s, 0, count);
  // What records free, logs get, also above their reserve; and the other way round.
  erase(s, 0, count);
  ASSERT_GT(give_back(s), 2);
  const auto more = s.pool().allocate_extent(ExtentKind::kLog, 1 << 20);
  ASSERT_TRUE(more) << more.error().to_string();
  ASSERT_TRUE(s.pool().free_extent(*more));
  EXPECT_GE(fill_up(s), count);
}

TEST(ReservesOfAStore, LeaveOnePieceThatIsAsLarge) {
  StoreInRegion s(kRegion, in_frames());
  constexpr uint64_t kPiece = 128 << 10;
  std::vector<persist::Extent> pieces;
  for (int i = 0; i < 8; ++i) {
    pieces.push_back(s.pool().allocate_extent(ExtentKind::kFileData, kPiece).value());
  }
  for (size_t i = 0; i < pieces.size(); i += 2) ASSERT_TRUE(s.pool().free_extent(pieces[i]));
  SpaceRules rules;
  rules.of(ExtentKind::kLog).reserve_bytes = s.pool().largest_free_extent();
  s.pool().set_space_rules(rules);
  EXPECT_EQ(s.pool().allocate_extent(ExtentKind::kFileData, kPiece + 256).code(), ErrorCode::kFull);
  EXPECT_TRUE(s.pool().allocate_extent(ExtentKind::kFileData, kPiece)) << "from another piece";
  EXPECT_TRUE(s.pool().allocate_extent(ExtentKind::kLog, rules.of(ExtentKind::kLog).reserve_bytes));
}

TEST(RecordsBesideReserves, HaveTheirOwnOne) {
  StoreInRegion s(kRegion, in_frames());
  SpaceRules rules;
  rules.of(ExtentKind::kRecords).reserve_bytes = 2 << 20;
  s.pool().set_space_rules(rules);
  for (uint64_t room = 1; room > 0; room = s.pool().room_for(ExtentKind::kLog)) {
    if (room == 1) continue;
    ASSERT_TRUE(s.pool().allocate_extent(ExtentKind::kLog, room));
  }
  fill_up(s);
  EXPECT_GE(s.store().arena().frames().extent_bytes() + kFrameBytes, 2u << 20);
}

TEST(RecordsBesideReserves, APoolThatIsFullSaysThatItIs) {
  StoreInRegion s(kRegion, in_frames());
  SpaceRules rules;
  rules.of(ExtentKind::kRecords).reserve_bytes = 2 << 20;
  s.pool().set_space_rules(rules);
  fill_up(s);
  EXPECT_THAT(s.put("more", value_of(0)).error().message, HasSubstr("the pool has no room"));
}

}  // namespace
}  // namespace pmstore::internal
