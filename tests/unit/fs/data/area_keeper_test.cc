// A file area that grows when it is full and gives back what is empty, and clients that reach its
// later sections, one-sided and by message.
#include "fs/internal/area_keeper.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "base/checksum.h"
#include "persist/pool_layout.h"
#include "persist/zero_ahead.h"
#include "tests/unit/fs/data/file_data_fixture.h"

namespace pmstore::fs {
namespace {

using internal::AreaKeeper;

constexpr uint64_t kKeeperAreaBytes = uint64_t{2} << 20;
constexpr uint64_t kKeeperSpareBytes = uint64_t{18} << 20;

class AreaKeeperTest : public FileDataTest, public testing::WithParamInterface<persist::Domain> {
 protected:
  AreaKeeperTest() : FileDataTest(GetParam(), kKeeperAreaBytes, kKeeperSpareBytes) {
    keep(UINT64_MAX);
  }
  ~AreaKeeperTest() override { keeper_.reset(); }
  void keep(uint64_t most_bytes) { keep({.most_bytes = most_bytes}, true); }
  void keep(const internal::AreaKeeperOptions& options, bool begins) {
    keeper_.reset();
    keeper_.emplace(executor_, pool_.pool(), *area_, *space_, *service_, options);
    if (begins) keeper_->begin();
  }
  bool one_sided() const { return GetParam() == persist::Domain::kCpuCache; }
  // All units that are free, and one more section.
  void fill_and_grow() {
    allocate(space_->free_bytes() / kUnitBytes);
    const Status grown = run(space_->make_room());
    ASSERT_TRUE(grown) << grown.error().to_string();
  }
  // How many there were.
  base::Task<uint64_t> turns_until(const base::Task<Status>& work) {
    uint64_t count = 0;
    for (; !work.done(); ++count) co_await executor_.yield();
    co_return count;
  }
  // Free space that had other data.
  uint64_t use_free_space() {
    const uint64_t most = pool_.pool().largest_free_extent();
    const auto used = pool_.pool().allocate_extent(persist::ExtentKind::kRecords, most).value();
    std::memset(pool_.pool().memory().at(used.offset), 7, used.bytes);
    EXPECT_TRUE(pool_.pool().free_extent(used));
    return most;
  }
  size_t file_extents() {
    const auto& all = pool_.pool().info().extents;
    return static_cast<size_t>(std::count_if(all.begin(), all.end(), [](const auto& each) {
      return each.kind == persist::ExtentKind::kFileData;
    }));
  }
  // As of a file that was removed, when no client has a map of it.
  void free(const MapExtent& extent) {
    change(extent);
    ASSERT_TRUE(run(space_->clean(extent.place)));
    space_->release(extent.place);
  }
  static constexpr uint64_t kKeptMs = AreaKeeper::kKeptNs / 1'000'000;
  static constexpr uint64_t kLongEnoughMs = 3 * kKeptMs;

  std::optional<AreaKeeper> keeper_;
};

INSTANTIATE_TEST_SUITE_P(Domains, AreaKeeperTest,
                         testing::Values(persist::Domain::kNone, persist::Domain::kMemoryController,
                                         persist::Domain::kCpuCache),
                         [](const auto& tested) {
                           return std::string(persist::domain_name(tested.param));
                         });

TEST_P(AreaKeeperTest, AClientReachesUnitsOfALaterSectionAsThoseOfTheFirst) {
  const auto data = open();
  const MapExtent first = allocate(1);
  ASSERT_NO_FATAL_FAILURE(fill_and_grow());
  const MapExtent later = allocate(3);
  ASSERT_GE(later.place.offset, area_->sections()[1].begin());
  const auto bytes = some(100'000);
  EXPECT_EQ(write(*data, later, 1234, bytes), DataOutcome::kDone);
  EXPECT_EQ(stored(later, 1234, bytes.size()), bytes);
  fabric::Counters before = data->counters();
  EXPECT_EQ(write(*data, later, 5000, some(4096, 9)), DataOutcome::kDone);
  EXPECT_EQ((data->counters() - before).round_trips, 1u) << "the section is known by now";
  std::vector<std::byte> into(4096);
  before = data->counters();
  EXPECT_EQ(read(*data, later, 5000, into), DataOutcome::kDone);
  EXPECT_EQ((data->counters() - before).server_messages, 0u);
  EXPECT_EQ(into, some(4096, 9));
  change(later);
  EXPECT_EQ(read(*data, later, 5000, into), DataOutcome::kStaleMap);
  EXPECT_EQ(write(*data, later, 5000, into), DataOutcome::kStaleMap);
  EXPECT_EQ(write(*data, first, 0, some(100)), DataOutcome::kDone);
}

// What an earlier section has left in the pool's space is zeroed in parts, between the answers.
TEST_P(AreaKeeperTest, TheSpaceOfASectionIsZeroedInTurnsOfItsOwn) {
  use_free_space();
  allocate(space_->free_bytes() / kUnitBytes);
  auto waiting = space_->make_room();
  waiting.start();
  const uint64_t turns = run(turns_until(waiting));
  ASSERT_TRUE(waiting.take());
  const AreaSection& made = area_->sections().back();
  EXPECT_GE(keeper_->zeroed_parts() + 1, made.extent.bytes / persist::zeroed_at_a_time(GetParam()));
  EXPECT_GE(turns, keeper_->zeroed_parts());
  const std::byte* const units = pool_.pool().memory().at(made.place());
  EXPECT_TRUE(
      std::all_of(units, units + made.bytes(), [](std::byte b) { return b == std::byte{0}; }));
}

// Others may take the space while it is zeroed: then the section is smaller, or there is none.
TEST_P(AreaKeeperTest, SpaceThatOthersTakeMeanwhileIsTheirs) {
  const uint64_t most = use_free_space();
  allocate(space_->free_bytes() / kUnitBytes);
  auto waiting = space_->make_room();
  waiting.start();
  ASSERT_FALSE(waiting.done()) << "one part is zeroed";
  ASSERT_TRUE(pool_.pool().allocate_extent(persist::ExtentKind::kRecords, most));
  run(turns_until(waiting));
  EXPECT_EQ(waiting.take().code(), ErrorCode::kFull);
  EXPECT_EQ(area_->sections().size(), 1u);
}

TEST_P(AreaKeeperTest, PiecesOfTwoSectionsAreOneAccess) {
  const auto data = open();
  const MapExtent one = allocate(1);
  ASSERT_NO_FATAL_FAILURE(fill_and_grow());
  const MapExtent other = allocate(1);
  const auto bytes = some(9000);
  const std::span<const std::byte> all(bytes);
  std::vector<WritePiece> pieces{{one, 60'000, all.first(4000)}, {other, 0, all.subspan(4000)}};
  EXPECT_EQ(run(data->write(data->session(), pieces)), DataOutcome::kDone);
  EXPECT_EQ(stored(one, 60'000, 4000), std::vector(bytes.begin(), bytes.begin() + 4000));
  EXPECT_EQ(stored(other, 0, 5000), std::vector(bytes.begin() + 4000, bytes.end()));
  std::vector<std::byte> into(bytes.size());
  const std::span<std::byte> room(into);
  std::vector<ReadPiece> back{{one, 60'000, room.first(4000)}, {other, 0, room.subspan(4000)}};
  EXPECT_EQ(run(data->read(data->session(), back)), DataOutcome::kDone);
  EXPECT_EQ(into, bytes);
  change(other);
  EXPECT_EQ(run(data->write(data->session(), pieces)), DataOutcome::kStaleMap);
}

TEST_P(AreaKeeperTest, WhatIsVisibleInTwoSectionsIsMadeDurableTogether) {
  const auto data = open();
  const MapExtent one = allocate(1);
  ASSERT_NO_FATAL_FAILURE(fill_and_grow());
  const MapExtent other = allocate(1);
  const auto bytes = some(4096);
  for (const MapExtent& extent : {one, other}) {
    std::vector<WritePiece> pieces{{extent, 4096, bytes}};
    EXPECT_EQ(run(data->write(data->session(), pieces, DataSync::kFsync)), DataOutcome::kDone);
  }
  const std::vector<persist::RemoteRange> ranges{{one.place.offset + 4096, 4096},
                                                 {other.place.offset + 4096, 4096}};
  const uint64_t start = data->start_of(data->session());
  EXPECT_EQ(run(data->persist(start, ranges)), PersistOutcome::kDurable);
  // By another object, which has asked for no section before.
  const auto another = open();
  EXPECT_EQ(run(another->persist(start, ranges)), PersistOutcome::kDurable);
  const std::vector<persist::RemoteRange> outside{{space_->end(), 1}};
  EXPECT_EQ(run(another->persist(start, outside)).code(), ErrorCode::kInvalidArgument);
}

TEST_P(AreaKeeperTest, WhatIsOutsideOfAllSectionsIsRefused) {
  const auto data = open();
  ASSERT_NO_FATAL_FAILURE(fill_and_grow());
  const MapExtent extent = allocate(1);
  MapExtent outside = extent;
  outside.place.offset = space_->end();
  EXPECT_EQ(write(*data, outside, 0, some(10)).code(), ErrorCode::kInvalidArgument);
  MapExtent between = extent;
  between.place.offset = area_->sections()[0].end();
  EXPECT_EQ(write(*data, between, 0, some(10)), DataOutcome::kStaleMap);
}

TEST_P(AreaKeeperTest, AnEmptySectionGoesBackAndOthersGetItsSpace) {
  const auto data = open();
  const uint64_t free_before = pool_.pool().largest_free_extent();
  ASSERT_NO_FATAL_FAILURE(fill_and_grow());
  EXPECT_EQ(file_extents(), 2u);
  const MapExtent extent = allocate(2);
  EXPECT_EQ(write(*data, extent, 0, some(1000)), DataOutcome::kDone);
  let_time_pass(kLongEnoughMs);
  EXPECT_EQ(file_extents(), 2u) << "a unit of it is in use";
  free(extent);
  let_time_pass(AreaKeeper::kKeptNs / 2'000'000);
  EXPECT_EQ(file_extents(), 2u) << "it may be wanted again soon";
  let_time_pass(kLongEnoughMs);
  EXPECT_EQ(file_extents(), 1u);
  EXPECT_EQ(pool_.pool().largest_free_extent(), free_before);
  const auto records = pool_.pool().allocate_extent(persist::ExtentKind::kRecords, free_before);
  ASSERT_TRUE(records) << records.error().to_string();
  // A client that uses an old map all the same does not reach what is there now.
  for (uint64_t i = 0; i < 2; ++i) {
    EXPECT_EQ(write(*data, extent, 0, some(1000, 3)), DataOutcome::kStaleMap);
  }
  const std::byte* const there = pool_.pool().memory().at(records->offset);
  EXPECT_TRUE(std::all_of(there, there + records->bytes,
                          [](std::byte each) { return each == std::byte{0}; }));
  const std::vector<persist::RemoteRange> ranges{{extent.place.offset, 1000}};
  EXPECT_EQ(run(data->persist(data->start_of(data->session()), ranges)), PersistOutcome::kDurable)
      << "no file has it";
}

TEST_P(AreaKeeperTest, ASectionThatIsMadeAgainHasOtherNumbers) {
  const auto data = open();
  ASSERT_NO_FATAL_FAILURE(fill_and_grow());
  const MapExtent before = allocate(2);
  EXPECT_EQ(write(*data, before, 0, some(1000)), DataOutcome::kDone);
  free(before);
  let_time_pass(kLongEnoughMs);
  ASSERT_EQ(file_extents(), 1u);
  ASSERT_TRUE(run(space_->make_room()));
  const MapExtent now = allocate(2);
  EXPECT_NE(now.place.offset, before.place.offset);
  EXPECT_EQ(write(*data, before, 0, some(1000, 3)), DataOutcome::kStaleMap);
  EXPECT_EQ(stored(now, 0, 1000), std::vector<std::byte>(1000));
  EXPECT_EQ(write(*data, now, 0, some(1000, 4)), DataOutcome::kDone);
}

TEST_P(AreaKeeperTest, TwoThatFindItFullMakeOneSection) {
  allocate(space_->free_bytes() / kUnitBytes);
  base::Task<Status> one = space_->make_room();
  base::Task<Status> other = space_->make_room();
  one.start();
  other.start();
  let_time_pass(1);
  ASSERT_TRUE(one.done() && other.done());
  EXPECT_EQ(file_extents(), 2u);
  EXPECT_TRUE(run(space_->make_room()));
  EXPECT_EQ(file_extents(), 3u);
}

TEST_P(AreaKeeperTest, AWaitForRoomThatIsDestroyedLeavesTheSectionToOthers) {
  allocate(space_->free_bytes() / kUnitBytes);
  {
    base::Task<Status> given_up = space_->make_room();
    given_up.start();
    ASSERT_FALSE(given_up.done());
  }
  let_time_pass(1);
  EXPECT_GT(space_->free_bytes(), 0u);
  allocate(1);
}

TEST_P(AreaKeeperTest, SomeIsLeftToOthersAndAFullPoolSaysWhoHasIt) {
  uint64_t promised = space_->growable_bytes();
  while (promised > 0) {
    const uint64_t total = space_->total_bytes();
    ASSERT_NO_FATAL_FAILURE(fill_and_grow());
    EXPECT_GT(space_->total_bytes(), total);
    EXPECT_LT(space_->growable_bytes(), promised);
    promised = space_->growable_bytes();
  }
  EXPECT_GE(pool_.pool().largest_free_extent(), internal::AreaKeeperOptions{}.least_step_bytes);
  const Status full = run(space_->make_room());
  ASSERT_EQ(full.code(), ErrorCode::kFull);
  EXPECT_NE(full.error().message.find("file data 1"), std::string::npos) << full.error().message;
}

TEST_P(AreaKeeperTest, WhatOthersHaveReservedStaysFreeAndTheOwnReserveIsUsedUp) {
  constexpr uint64_t kReserved = uint64_t{9} << 20;
  persist::SpaceRules rules;
  rules.of(persist::ExtentKind::kLog).reserve_bytes = kReserved;
  pool_.pool().set_space_rules(rules);
  while (space_->growable_bytes() > 0) ASSERT_NO_FATAL_FAILURE(fill_and_grow());
  EXPECT_GE(pool_.pool().largest_free_extent(), kReserved);
  const Status full = run(space_->make_room());
  ASSERT_EQ(full.code(), ErrorCode::kFull);
  EXPECT_NE(full.error().message.find("of what is free is reserved 9 MiB"), std::string::npos)
      << full.error().message;
  // Then nothing is left to others that file data has reserved.
  rules = {};
  rules.of(persist::ExtentKind::kFileData).reserve_bytes = 2 * kKeeperSpareBytes;
  pool_.pool().set_space_rules(rules);
  while (space_->growable_bytes() > 0) ASSERT_NO_FATAL_FAILURE(fill_and_grow());
  EXPECT_LT(pool_.pool().largest_free_extent(), internal::AreaKeeperOptions{}.least_section_bytes);
}

TEST_P(AreaKeeperTest, AnAreaIsNotMadeLargerThanItMayBe) {
  keep(space_->total_bytes() + (uint64_t{3} << 20));
  ASSERT_NO_FATAL_FAILURE(fill_and_grow());
  EXPECT_LE(space_->total_bytes(), kKeeperAreaBytes + (uint64_t{3} << 20));
  EXPECT_EQ(run(space_->make_room()).code(), ErrorCode::kFull);
}

// A crash between the extent and its first use.
TEST_P(AreaKeeperTest, ASectionThatTheLastStartHasNotUsedIsFoundEmpty) {
  ASSERT_NO_FATAL_FAILURE(fill_and_grow());
  keeper_.reset();
  stop();
  start();
  keep(UINT64_MAX);
  EXPECT_EQ(space_->total_bytes(), area_->bytes());
  EXPECT_EQ(space_->free_bytes(), space_->total_bytes());
  const auto data = open();
  const AreaRange place{0, area_->sections()[1].begin(), 2 * kUnitBytes};
  ASSERT_TRUE(space_->claim(place)) << "as a map of the namespace names it";
  EXPECT_EQ(write(*data, map(place), 7, some(1000)), DataOutcome::kDone);
  EXPECT_FALSE(space_->claim({0, area_->sections()[0].end(), kUnitBytes})) << "there is no unit";
  free(map(place));
  let_time_pass(kLongEnoughMs);
  EXPECT_EQ(file_extents(), 1u);
}

// A call of it is destroyed, or does without it.
TEST_P(AreaKeeperTest, ASectionThatIsNotUsedGoesAgain) {
  allocate(space_->free_bytes() / kUnitBytes);
  {
    base::Task<Status> given_up = space_->make_room();
    given_up.start();
  }
  let_time_pass(1);
  ASSERT_EQ(file_extents(), 2u);
  let_time_pass(kLongEnoughMs);
  EXPECT_EQ(file_extents(), 1u);
}

TEST_P(AreaKeeperTest, EachSectionIsKeptForAWhileByItself) {
  ASSERT_NO_FATAL_FAILURE(fill_and_grow());
  std::vector<MapExtent> all;
  for (int i = 0; i < 2; ++i) {
    all.push_back(allocate(space_->free_bytes() / kUnitBytes));
    ASSERT_TRUE(run(space_->make_room()));
  }
  all.push_back(allocate(1));
  let_time_pass(kLongEnoughMs);
  for (const MapExtent& each : all) {
    free(each);
    let_time_pass(kKeptMs * 2 / 5);
  }
  EXPECT_EQ(file_extents(), 3u) << "one was empty for long enough";
  let_time_pass(kKeptMs * 2 / 5);
  EXPECT_EQ(file_extents(), 2u);
  EXPECT_FALSE(space_->has_word(all[1].place.offset));
  EXPECT_TRUE(space_->has_word(all[2].place.offset));
  let_time_pass(kKeptMs);
  EXPECT_EQ(file_extents(), 1u);
}

TEST_P(AreaKeeperTest, WhatIsEmptyStaysWhileCallsAskForMore) {
  ASSERT_NO_FATAL_FAILURE(fill_and_grow());
  free(allocate(1));
  for (size_t sections = 2; sections < 4; ++sections) {
    let_time_pass(kKeptMs * 9 / 10);
    EXPECT_EQ(file_extents(), sections);
    ASSERT_TRUE(run(space_->make_room()));
  }
  let_time_pass(kLongEnoughMs);
  EXPECT_EQ(file_extents(), 1u);
}

TEST_P(AreaKeeperTest, NothingIsMadeOrGivenBackBeforeItBegins) {
  ASSERT_NO_FATAL_FAILURE(fill_and_grow());
  const MapExtent extent = allocate(1);
  keep({}, false);
  free(extent);
  EXPECT_EQ(space_->growable_bytes(), 0u);
  EXPECT_EQ(run(space_->make_room()).code(), ErrorCode::kFull);
  let_time_pass(kLongEnoughMs);
  keeper_->give_back_now();
  EXPECT_EQ(file_extents(), 2u) << "a unit of it may be in use";
  EXPECT_EQ(space_->total_bytes(), area_->bytes());
  keeper_->begin();
  EXPECT_GT(space_->growable_bytes(), 0u);
  let_time_pass(kLongEnoughMs);
  EXPECT_EQ(file_extents(), 1u);
}

TEST_P(AreaKeeperTest, WhatIsPromisedIsMade) {
  const internal::AreaKeeperOptions many{.least_step_bytes = 256 << 10,
                                         .most_step_bytes = 256 << 10,
                                         .least_section_bytes = 256 << 10};
  for (const internal::AreaKeeperOptions& options : {internal::AreaKeeperOptions{}, many}) {
    keep(options, true);
    const uint64_t total = space_->total_bytes();
    const uint64_t promised = space_->growable_bytes();
    EXPECT_GE(promised, uint64_t{3} << 20);
    while (run(space_->make_room())) {
      EXPECT_LE(file_extents(), 1 + AreaKeeper::kMostSections);
    }
    EXPECT_EQ(space_->growable_bytes(), 0u);
    EXPECT_GE(space_->total_bytes() - total, promised);
    EXPECT_LE(space_->total_bytes() - total, promised + (file_extents() - 1) * kUnitBytes);
    let_time_pass(kLongEnoughMs);
    ASSERT_EQ(file_extents(), 1u);
  }
}

TEST_P(AreaKeeperTest, WhatIsUnderWayIsPromisedStill) {
  const uint64_t promised = space_->growable_bytes();
  base::Task<Status> grows = space_->make_room();
  grows.start();
  bool is_taken = false;
  for (int turn = 0; turn < 1000 && !grows.done(); ++turn) {
    // Until its extent is taken, and in that turn too.
    if (!is_taken) {
      EXPECT_GE(space_->growable_bytes() + kUnitBytes, promised) << turn;
    }
    is_taken = file_extents() > 1;
    executor_.run_once();
  }
  ASSERT_TRUE(grows.done());
  EXPECT_TRUE(is_taken) << "in a turn before the last one";
  EXPECT_LT(space_->growable_bytes() + kUnitBytes, promised);
}

TEST_P(AreaKeeperTest, APoolWithoutAnEntryForAnotherExtentPromisesNothing) {
  const auto add_extents = [this](size_t most) {
    while (pool_.pool().info().extents.size() < most) {
      ASSERT_TRUE(pool_.pool().allocate_extent(persist::ExtentKind::kRecords, 4096));
    }
  };
  ASSERT_NO_FATAL_FAILURE(add_extents(persist::kMaxExtents - 1));
  const uint64_t promised = space_->growable_bytes();
  EXPECT_GT(promised, 0u);
  EXPECT_LE(promised, internal::AreaKeeperOptions{}.least_step_bytes) << "one section";
  ASSERT_NO_FATAL_FAILURE(add_extents(persist::kMaxExtents));
  EXPECT_EQ(space_->growable_bytes(), 0u);
  EXPECT_EQ(run(space_->make_room()).code(), ErrorCode::kFull);
}

// As earlier releases have made it.
TEST_P(AreaKeeperTest, APoolWhoseExtentsStayGetsNoLaterSection) {
  keeper_.reset();
  stop();
  persist::PoolHeader header;
  std::memcpy(&header, pool_.pool().memory().at(0), sizeof header);
  header.padding_off &= ~persist::kExtentsComeBack;
  header.crc = 0;
  header.crc = base::crc32c(std::as_bytes(std::span(&header, 1)));
  std::memcpy(pool_.pool().memory().at(0), &header, sizeof header);
  start();
  keep(UINT64_MAX);
  EXPECT_EQ(space_->growable_bytes(), 0u);
  EXPECT_EQ(run(space_->make_room()).code(), ErrorCode::kFull);
  EXPECT_EQ(file_extents(), 1u);
}

// The refusal of one access ends the connection, and all that is under way on it.
TEST_P(AreaKeeperTest, AnAccessBesideOneToAGoneSectionIsToBeRepeated) {
  const auto data = open();
  const MapExtent first = allocate(1);
  ASSERT_NO_FATAL_FAILURE(fill_and_grow());
  const MapExtent gone = allocate(1);
  EXPECT_EQ(write(*data, gone, 0, some(1000)), DataOutcome::kDone);
  free(gone);
  let_time_pass(kLongEnoughMs);
  ASSERT_EQ(file_extents(), 1u);
  std::vector<std::byte> into(4096);
  const auto reading = [&](const MapExtent& extent) {
    std::vector<ReadPiece> pieces{{extent, 0, into}};
    return data->read(data->session(), std::move(pieces));
  };
  auto refused = reading(gone);
  auto beside = reading(first);
  refused.start();
  beside.start();
  let_time_pass(kLongEnoughMs);
  ASSERT_TRUE(refused.done() && beside.done());
  EXPECT_EQ(refused.take(), DataOutcome::kStaleMap);
  const auto outcome = beside.take();
  EXPECT_TRUE(outcome) << outcome.error().to_string();
  EXPECT_EQ(read(*data, first, 0, into), DataOutcome::kDone);
}

}  // namespace
}  // namespace pmstore::fs
