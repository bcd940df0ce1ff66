// LogStore: extents of the pool that logs take when they need them, and give back.
#include <algorithm>
#include <cstring>
#include <optional>

#include "tests/unit/log/log_pool.h"
#include "tests/unit/persist/scratch.h"

namespace pmstore::log {
namespace {

constexpr uint64_t kFree = 512 * 1024;
constexpr uint64_t kLarge = 100 * 1024;

// A pool that has so much for logs, in its area and free.
class LogRooms : public testing::Test {
 protected:
  explicit LogRooms(uint64_t area_bytes = 64 * 1024)
      : pool_(area_bytes, persist::Domain::kMemoryController, {}, 77, kFree) {}

  size_t extents() const { return pool_.store().extents().size(); }
  uint64_t extent_of(uint64_t id) const { return pool_.store().where(id)->extent.name; }
  LogAreaHeader header() {
    LogAreaHeader headers[2];
    for (size_t copy = 0; copy < 2; ++copy) {
      std::memcpy(&headers[copy], pool_.store().area().data() + copy * kLogAreaCopyStride,
                  sizeof headers[copy]);
    }
    return headers[0].generation > headers[1].generation ? headers[0] : headers[1];
  }
  std::optional<persist::Extent> extent_in_pool(uint64_t name) {
    for (const persist::Extent& extent : pool_.pool().info().extents) {
      if (room_name(extent.entry, extent.generation) == name) return extent;
    }
    return std::nullopt;
  }
  mutable LogPool pool_;
};

class LogsWithoutAnArea : public LogRooms {
 protected:
  LogsWithoutAnArea() : LogRooms(0) {}
};

TEST_F(LogsWithoutAnArea, ThePoolGivesNothingBeforeTheFirstLog) {
  const uint64_t free = pool_.pool().largest_free_extent();
  EXPECT_FALSE(LogStore::is_in(pool_.pool()));
  EXPECT_EQ(extents(), 0u);
  EXPECT_TRUE(pool_.store().list().empty());
  EXPECT_EQ(pool_.store().find("a").code(), ErrorCode::kNotFound);
  pool_.reopen();
  EXPECT_EQ(pool_.pool().largest_free_extent(), free);
  EXPECT_EQ(LogStore::open(pool_.pool()).code(), ErrorCode::kNotFound);
}

TEST_F(LogsWithoutAnArea, TheFirstLogMakesTheArea) {
  EXPECT_EQ(pool_.store().area_identity(), kIdentityOfNew);
  const uint64_t epoch = pool_.store().epoch();
  const uint64_t id = pool_.make("a");
  EXPECT_TRUE(LogStore::is_in(pool_.pool()));
  EXPECT_EQ(pool_.store().epoch(), epoch);
  ASSERT_TRUE(pool_.append(id, {"one", "two"}));
  for (int start = 0; start < 2; ++start) {
    const uint64_t before = pool_.store().epoch();
    pool_.reopen();
    EXPECT_GT(pool_.store().epoch(), before);
    EXPECT_EQ(pool_.store().area_identity(), kIdentityOfNew);
    EXPECT_EQ(entries_of(pool_.store(), "a"), (std::vector<TestEntry>{{1, "one"}, {2, "two"}}));
  }
}

TEST_F(LogsWithoutAnArea, AFullPoolRefusesTheFirstLogAndServesALaterOne) {
  const persist::Extent taken =
      pool_.pool()
          .allocate_extent(persist::ExtentKind::kRecords, pool_.pool().largest_free_extent())
          .value();
  const auto refused = pool_.store().create("a", {kTestLog, FullPolicy::kBackPressure});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.code(), ErrorCode::kFull);
  EXPECT_EQ(extents(), 0u);
  ASSERT_TRUE(pool_.pool().free_extent(taken));
  pool_.make("a");
  pool_.reopen();
  EXPECT_EQ(pool_.store().list().size(), 1u);
}

TEST_F(LogRooms, ALogThatTheAreaHasNoRoomForTakesAnExtent) {
  const uint64_t small = pool_.make("small");
  const uint64_t large = pool_.make("large", FullPolicy::kBackPressure, kLarge);
  EXPECT_EQ(extent_of(small), 0u);
  EXPECT_NE(extent_of(large), 0u);
  EXPECT_EQ(extents(), 2u);
  ASSERT_TRUE(pool_.append(small, {"s"}));
  ASSERT_TRUE(pool_.append(large, {std::string(kLarge / 3, 'l'), "last"}));
  pool_.reopen();
  EXPECT_EQ(entries_of(pool_.store(), "small"), (std::vector<TestEntry>{{1, "s"}}));
  EXPECT_EQ(entries_of(pool_.store(), "large"),
            (std::vector<TestEntry>{{1, std::string(kLarge / 3, 'l')}, {2, "last"}}));
}

TEST_F(LogRooms, TheExtentOfADeletedLogIsThePoolsAgain) {
  const uint64_t free = pool_.pool().largest_free_extent();
  const uint64_t large = pool_.make("large", FullPolicy::kBackPressure, 3 * kLarge);
  std::vector<uint64_t> told;
  bool was_there = false;
  const uint64_t name = extent_of(large);
  pool_.store().before_giving_back([&](uint64_t extent) {
    told.push_back(extent);
    was_there = extent_in_pool(extent).has_value();
  });
  ASSERT_LT(pool_.pool().largest_free_extent(), free);
  ASSERT_TRUE(pool_.store().erase(large));
  EXPECT_EQ(told, (std::vector<uint64_t>{name}));
  EXPECT_TRUE(was_there) << "rights go before the memory does";
  EXPECT_EQ(pool_.pool().largest_free_extent(), free);
  EXPECT_TRUE(pool_.pool().allocate_extent(persist::ExtentKind::kRecords, free));
  pool_.reopen();
  EXPECT_TRUE(pool_.store().list().empty());
}

TEST_F(LogRooms, AnExtentStaysAsLongAsItHasALog) {
  pool_.make("in-area", FullPolicy::kBackPressure, 40 * 1024);
  ASSERT_TRUE(pool_.pool().allocate_extent(persist::ExtentKind::kLog, kLarge));
  const uint64_t first = pool_.make("first", FullPolicy::kBackPressure, 30 * 1024);
  const uint64_t beside = pool_.make("beside", FullPolicy::kBackPressure, kTestLog);
  ASSERT_NE(extent_of(first), 0u);
  ASSERT_EQ(extent_of(beside), extent_of(first));
  ASSERT_TRUE(pool_.append(beside, {"stays"}));
  ASSERT_TRUE(pool_.store().erase(first));
  EXPECT_EQ(extents(), 2u);
  pool_.reopen();
  EXPECT_EQ(entries_of(pool_.store(), "beside"), (std::vector<TestEntry>{{1, "stays"}}));
  ASSERT_TRUE(pool_.store().erase(pool_.store().find("beside")->id));
  EXPECT_EQ(extents(), 1u);
}

TEST_F(LogRooms, AnExtentWithoutALogIsGivenBackAtTheNextStart) {
  const uint64_t free = pool_.pool().largest_free_extent();
  pool_.make("a");
  ASSERT_TRUE(pool_.pool().allocate_extent(persist::ExtentKind::kLog, kLarge));
  ASSERT_EQ(extents(), 2u);
  pool_.reopen();
  EXPECT_EQ(extents(), 1u);
  EXPECT_EQ(pool_.pool().largest_free_extent(), free);
  EXPECT_EQ(pool_.store().list().size(), 1u);
}

// As damage to a slot that says so brings a deleted log back.
TEST_F(LogRooms, ALogWhoseExtentIsGoneIsLostAndCanBeDeleted) {
  pool_.make("stays");
  const uint64_t id = pool_.make("gone", FullPolicy::kBackPressure, kLarge);
  ASSERT_TRUE(pool_.pool().free_extent(*extent_in_pool(extent_of(id))));
  // The same entry and place, of somebody else.
  ASSERT_TRUE(pool_.pool().allocate_extent(persist::ExtentKind::kLog, kLarge + 1024));
  pool_.reopen();
  ASSERT_TRUE(pool_.store().find("gone"));
  EXPECT_TRUE(is_lost(*pool_.store().find("gone")));
  EXPECT_FALSE(is_lost(*pool_.store().find("stays")));
  ASSERT_TRUE(pool_.store().erase(id));
  pool_.reopen();
  EXPECT_EQ(pool_.store().list().size(), 1u);
}

// The pool gives the entry of the freed extent to the next one.
TEST_F(LogRooms, ALogWhoseExtentIsGoneIsLostInALaterExtentOfTheSameEntry) {
  pool_.make("in-area", FullPolicy::kBackPressure, 40 * 1024);
  const auto room = pool_.pool().allocate_extent(persist::ExtentKind::kLog, kLarge);
  ASSERT_TRUE(room);
  const uint64_t first = pool_.make("first", FullPolicy::kBackPressure, 30 * 1024);
  const uint64_t gone = pool_.make("gone");
  ASSERT_EQ(extent_of(gone), room_name(room->entry, room->generation));
  ASSERT_TRUE(pool_.append(gone, {"one"}));
  ASSERT_TRUE(pool_.pool().free_extent(*room));
  const auto later = pool_.pool().allocate_extent(persist::ExtentKind::kLog, kLarge);
  ASSERT_TRUE(later);
  ASSERT_EQ(later->entry, room->entry);
  ASSERT_EQ(later->offset, room->offset);
  const uint64_t other = pool_.make("other", FullPolicy::kBackPressure, 30 * 1024);
  ASSERT_EQ(extent_of(other), room_name(later->entry, later->generation));
  pool_.reopen();
  EXPECT_TRUE(is_lost(*pool_.store().find("gone")));
  EXPECT_FALSE(is_lost(*pool_.store().find("other")));
  ASSERT_TRUE(pool_.append(other, {"stays"}));
  ASSERT_TRUE(pool_.store().erase(first));
  ASSERT_TRUE(pool_.store().erase(gone));
  EXPECT_EQ(extents(), 2u) << "the later extent is not theirs to give back";
  pool_.reopen();
  EXPECT_EQ(entries_of(pool_.store(), "other"), (std::vector<TestEntry>{{1, "stays"}}));
}

TEST_F(LogRooms, LeaveWhatIsKeptForOthers) {
  pool_.store().keep_free([this] { return pool_.pool().largest_free_extent(); });
  const auto refused = pool_.store().create("large", {kLarge, FullPolicy::kBackPressure});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.code(), ErrorCode::kFull);
  pool_.store().keep_free([] { return 0; });
  EXPECT_TRUE(pool_.store().create("large", {kLarge, FullPolicy::kBackPressure}));
}

TEST_F(LogRooms, TakeNoMoreThanTheirLimit) {
  constexpr uint64_t kLimit = 64 * 1024 + 2 * kLarge;
  pool_.store().limit_to(kLimit);
  const uint64_t id = pool_.make("a", FullPolicy::kBackPressure, kLarge);
  const auto refused = pool_.store().create("b", {kLarge, FullPolicy::kBackPressure});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.code(), ErrorCode::kFull);
  EXPECT_NE(refused.error().message.find("--log-limit"), std::string::npos)
      << refused.error().message;
  uint64_t bytes = 0;
  for (const LogExtent& extent : pool_.store().extents()) bytes += extent.bytes;
  EXPECT_LE(bytes, kLimit);
  EXPECT_GT(pool_.pool().largest_free_extent(), kLarge) << "the pool has room for others";
  ASSERT_TRUE(pool_.append(id, {"goes on"}));
  ASSERT_TRUE(pool_.store().erase(id));
  EXPECT_TRUE(pool_.store().create("b", {kLarge, FullPolicy::kBackPressure}));
}

TEST_F(LogRooms, LeaveWhatOthersHaveReservedAndSayWhoHas) {
  persist::SpaceRules rules;
  const uint64_t free = pool_.pool().largest_free_extent();
  uint64_t records = free - kLarge;  // to be free, and what they have
  for (const persist::Extent& extent : pool_.pool().info().extents) {
    if (extent.kind == persist::ExtentKind::kRecords) records += extent.bytes;
  }
  rules.of(persist::ExtentKind::kRecords).reserve_bytes = records;
  pool_.pool().set_space_rules(rules);
  const auto refused = pool_.store().create("a", {2 * kLarge, FullPolicy::kBackPressure});
  ASSERT_EQ(refused.code(), ErrorCode::kFull);
  EXPECT_NE(refused.error().message.find("or lower the reserve (pmstore pool limit): of the free "
                                         "space of the pool is reserved"),
            std::string::npos)
      << refused.error().message;
  EXPECT_NE(refused.error().message.find("for records"), std::string::npos);
  EXPECT_TRUE(pool_.store().create("a", {kLarge / 2, FullPolicy::kBackPressure}));
  EXPECT_TRUE(pool_.pool().allocate_extent(persist::ExtentKind::kRecords, free - kLarge));
}

TEST_F(LogRooms, ALimitBelowWhatTheyHaveTakesNothingFromThem) {
  const uint64_t id = pool_.make("a", FullPolicy::kBackPressure, kLarge);
  ASSERT_TRUE(pool_.append(id, {"one"}));
  pool_.reopen();
  pool_.store().limit_to(1);
  EXPECT_EQ(entries_of(pool_.store(), "a"), (std::vector<TestEntry>{{1, "one"}}));
  ASSERT_TRUE(pool_.append(id, {"two"}));
  EXPECT_EQ(pool_.store().create("b", {kLarge, FullPolicy::kBackPressure}).code(),
            ErrorCode::kFull);
}

TEST_F(LogsWithoutAnArea, GetNoneThatIsAboveTheLimit) {
  pool_.store().limit_to(1024);
  EXPECT_EQ(pool_.store().create("a", {kTestLog, FullPolicy::kBackPressure}).code(),
            ErrorCode::kFull);
  EXPECT_FALSE(LogStore::is_in(pool_.pool()));
  pool_.store().limit_to(UINT64_MAX);
  EXPECT_TRUE(pool_.store().create("a", {kTestLog, FullPolicy::kBackPressure}));
}

// An extent of a pool in a file takes more than a small log needs.
TEST(LogRoomsOfAFile, TakeNoMoreThanTheirLimit) {
  constexpr uint64_t kAreaBytes = 4 << 20;
  const persist::Scratch scratch;
  const auto fill = [](persist::Pool& pool) { return LogStore::format(pool, kAreaBytes, 77); };
  persist::PoolOpenOptions with;
  with.assume_domain = persist::Domain::kMemoryController;
  const auto pool =
      persist::Pool::create(scratch.path("pool"), 32 << 20, with, false, fill).value();
  const auto store = LogStore::open(*pool).value();
  LogOptions options;
  options.bytes = 3 << 20;
  ASSERT_TRUE(store->create("large", options));
  options.bytes = 1 << 20;
  const auto bytes = [&] {
    uint64_t all = 0;
    for (const LogExtent& extent : store->extents()) all += extent.bytes;
    return all;
  };
  const uint64_t had = bytes();
  ASSERT_GT(pool->least_extent(), 3 * options.bytes / 2);
  store->limit_to(had + 3 * options.bytes / 2);
  EXPECT_EQ(store->create("small", options).code(), ErrorCode::kFull);
  EXPECT_EQ(bytes(), had);
  store->limit_to(had + 2 * pool->least_extent());
  EXPECT_TRUE(store->create("small", options));
}

constexpr uint64_t kAhead = 16 * 1024;

LogOptions shape_of(uint64_t bytes) { return {bytes, FullPolicy::kBackPressure}; }

int steps_ahead(LogStore& store, std::string_view name, uint64_t bytes) {
  int steps = 1;
  while (store.prepare(name, shape_of(bytes), {}, kAhead).value()) ++steps;
  return steps;
}

// Logs that come and go: what they leave is not zero.
void use(LogPool& pool, std::string_view name, uint64_t bytes) {
  const uint64_t id = pool.make(name, FullPolicy::kBackPressure, bytes);
  const auto where = pool.store().where(id).value();
  std::memset(pool.pool().memory().at(where.extent.offset + where.region_offset), 7,
              where.region_bytes);
  ASSERT_TRUE(pool.store().erase(id));
}

// What create() stores or flushes, in bytes.
uint64_t touched_by_create(LogPool& pool, std::string_view name, uint64_t bytes) {
  persist::Memory& memory = pool.pool().memory();
  const uint64_t before = memory.stats().flushed_lines;
  pool.make(name, FullPolicy::kBackPressure, bytes);
  return (memory.stats().flushed_lines - before) * persist::kLineBytes;
}

TEST_F(LogRooms, TheExtentOfALogIsZeroedAheadInSteps) {
  use(pool_, "before", kLarge);
  EXPECT_EQ(extents(), 1u);
  const int steps = steps_ahead(pool_.store(), "a", kLarge);
  EXPECT_GE(steps, static_cast<int>(kLarge / kAhead));
  EXPECT_LE(steps, static_cast<int>(kLarge / kAhead) + 3);
  EXPECT_EQ(extents(), 1u) << "nothing is taken before the log is made";
  EXPECT_TRUE(pool_.store().list().empty());
  EXPECT_LT(touched_by_create(pool_, "a", kLarge), kAhead);
  EXPECT_TRUE(entries_of(pool_.store(), "a").empty());
}

TEST_F(LogRooms, ARegionBetweenLogsIsErasedAheadInSteps) {
  use(pool_, "before", kTestLog);
  int steps = 1;
  while (pool_.store().prepare("a", shape_of(kTestLog), {}, kTestLog / 4).value()) ++steps;
  EXPECT_EQ(steps, 4);
  EXPECT_FALSE(pool_.store().prepare("a", shape_of(kTestLog), {}, 256).value()) << "it is erased";
  EXPECT_LT(touched_by_create(pool_, "a", kTestLog), kTestLog);
  const uint64_t id = pool_.store().find("a")->id;
  const std::byte* const data = pool_.data_of(id, 0);
  EXPECT_TRUE(std::all_of(data, data + kTestLog, [](std::byte b) { return b == std::byte{0}; }));
}

// The space that was prepared is another log's by then.
TEST_F(LogRooms, WhatIsPreparedIsNotTakenForErasedWhenAnotherLogWasThere) {
  use(pool_, "before", kTestLog);
  ASSERT_EQ(steps_ahead(pool_.store(), "a", kTestLog), 1);
  use(pool_, "between", kTestLog);
  const uint64_t id = pool_.make("a");
  const std::byte* const data = pool_.data_of(id, 0);
  EXPECT_TRUE(std::all_of(data, data + kTestLog, [](std::byte b) { return b == std::byte{0}; }));
}

TEST_F(LogRooms, HalfOfAPreparationIsEnough) {
  use(pool_, "before", kTestLog);
  ASSERT_TRUE(pool_.store().prepare("a", shape_of(kTestLog), {}, 256).value());
  const uint64_t id = pool_.make("a");
  const std::byte* const data = pool_.data_of(id, 0);
  EXPECT_TRUE(std::all_of(data, data + kTestLog, [](std::byte b) { return b == std::byte{0}; }));
}

TEST_F(LogRooms, WhatIsRefusedIsNotPrepared) {
  pool_.make("a");
  persist::Memory& memory = pool_.pool().memory();
  const uint64_t before = memory.stats().flushed_lines;
  EXPECT_EQ(pool_.store().prepare("a", shape_of(kLarge), {}, kAhead).code(),
            ErrorCode::kAlreadyExists);
  EXPECT_EQ(pool_.store().prepare("", shape_of(kLarge), {}, kAhead).code(),
            ErrorCode::kInvalidArgument);
  EXPECT_FALSE(pool_.store().prepare("b", shape_of(kFree), {}, kAhead).value_or(false));
  EXPECT_EQ(memory.stats().flushed_lines, before);
}

TEST_F(LogsWithoutAnArea, ThatIsMadeForALogGoesWhenTheLogIsNotMade) {
  const uint64_t free = pool_.pool().largest_free_extent();
  while (pool_.store().prepare("a", shape_of(kLarge), {}, kAhead).value()) {
  }
  EXPECT_TRUE(LogStore::is_in(pool_.pool()));
  ASSERT_TRUE(pool_.store().end_preparing());
  EXPECT_FALSE(LogStore::is_in(pool_.pool()));
  EXPECT_EQ(pool_.pool().largest_free_extent(), free);
  pool_.make("a", FullPolicy::kBackPressure, kLarge);
  ASSERT_TRUE(pool_.store().end_preparing());
  EXPECT_TRUE(pool_.store().find("a")) << "an area with a log stays";
}

TEST_F(LogsWithoutAnArea, ThatIsMadeForALogThatHasNoRoomGoes) {
  const uint64_t free = pool_.pool().largest_free_extent();
  while (pool_.store().prepare("a", shape_of(kFree), {}, kAhead).value()) {
  }
  EXPECT_EQ(pool_.store().create("a", shape_of(kFree)).code(), ErrorCode::kFull);
  EXPECT_FALSE(LogStore::is_in(pool_.pool()));
  EXPECT_EQ(pool_.pool().largest_free_extent(), free);
}

TEST_F(LogRooms, AnAreaThatWasThereBeforeStaysWhateverIsNotMade) {
  while (pool_.store().prepare("a", shape_of(kLarge), {}, kAhead).value()) {
  }
  ASSERT_TRUE(pool_.store().end_preparing());
  EXPECT_TRUE(LogStore::is_in(pool_.pool()));
}

TEST_F(LogsWithoutAnArea, ALogThatIsRefusedTakesNothing) {
  const uint64_t free = pool_.pool().largest_free_extent();
  for (const uint64_t limit : {uint64_t{64} * 1024, UINT64_MAX}) {
    pool_.store().limit_to(limit);
    const uint64_t bytes = limit == UINT64_MAX ? kFree : kLarge;
    EXPECT_EQ(pool_.store().create("a", {bytes, FullPolicy::kBackPressure}).code(),
              ErrorCode::kFull);
    EXPECT_EQ(pool_.pool().largest_free_extent(), free) << limit;
    EXPECT_FALSE(LogStore::is_in(pool_.pool()));
    EXPECT_EQ(extents(), 0u);
  }
  const uint64_t id = pool_.make("a");
  EXPECT_EQ(pool_.store().area_identity(), kIdentityOfNew);
  ASSERT_TRUE(pool_.append(id, {"one"}));
  pool_.reopen();
  EXPECT_EQ(pool_.store().area_identity(), kIdentityOfNew);
  EXPECT_EQ(entries_of(pool_.store(), "a"), (std::vector<TestEntry>{{1, "one"}}));
}

TEST_F(LogRooms, AFullPoolIsAnErrorForTheOneWhoAsks) {
  const uint64_t id = pool_.make("a");
  const auto refused = pool_.store().create("b", {kFree, FullPolicy::kBackPressure});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.code(), ErrorCode::kFull);
  EXPECT_NE(refused.error().message.find("the largest that fits has"), std::string::npos);
  EXPECT_NE(refused.error().message.find("pmstore pool info"), std::string::npos);
  EXPECT_EQ(extents(), 1u);
  ASSERT_TRUE(pool_.append(id, {"goes on"}));
  EXPECT_TRUE(pool_.store().create("b", {kFree / 2, FullPolicy::kBackPressure}));
}

TEST_F(LogRooms, IdsAreNotUsedAgainWhenTheirExtentsAreGone) {
  const uint64_t first = pool_.make("a", FullPolicy::kBackPressure, kLarge);
  ASSERT_TRUE(pool_.store().erase(first));
  pool_.reopen();
  const uint64_t second = pool_.make("a", FullPolicy::kBackPressure, kLarge);
  EXPECT_GT(second, first);
  EXPECT_EQ(pool_.store().info(first).code(), ErrorCode::kNotFound);
}

// Programs of before rooms go on with areas that have none.
TEST_F(LogRooms, EarlierVersionsRefuseAnAreaFromItsFirstRoomOn) {
  pool_.make("small");
  pool_.reopen();
  EXPECT_EQ(header().version, kLogFormatVersion);
  pool_.make("large", FullPolicy::kBackPressure, kLarge);
  EXPECT_EQ(header().version, kLogVersionWithRooms);
  pool_.reopen();
  EXPECT_EQ(header().version, kLogVersionWithRooms);
}

}  // namespace
}  // namespace pmstore::log
