// Records that are limited to a part of the pool, and records that have a part of it from the
// beginning.
#include <gtest/gtest.h>

#include <string>

#include "pmstore/check.h"
#include "tests/unit/pmstore/shard/record_frames_fixture.h"
#include "tests/unit/pmstore/shard/store_fixture.h"

namespace pmstore::internal {
namespace {

using namespace small_frames;

constexpr uint64_t kRegion = 4 << 20;

uint64_t bytes_of(StoreInRegion& s) { return s.store().arena().frames().extent_bytes(); }

TEST(RecordLimit, BoundsTheExtentsOfRecordsAndNothingElse) {
  StoreInRegion s(kRegion, in_frames());
  constexpr uint64_t kLimit = 2 * kFrameBytes;  // the third extent gets a part of a frame
  s.store().arena().limit_to(kLimit);
  const int count = fill_up(s);
  EXPECT_LE(bytes_of(s), kLimit);
  EXPECT_GT(bytes_of(s) + kChunkBytes, kLimit) << "all but less than a chunk";
  EXPECT_EQ(extents(s), 3u);
  EXPECT_GT(s.pool().largest_free_extent(), kFrameBytes) << "the pool has room for others";
  const auto refused = s.put("more", value_of(0));
  EXPECT_EQ(refused.code(), ErrorCode::kFull);
  EXPECT_NE(refused.error().message.find("are limited to 524288 bytes"), std::string::npos)
      << refused.error().message;
  EXPECT_NE(refused.error().message.find("--record-limit"), std::string::npos);
  EXPECT_EQ(refused.error().message.find('\n'), std::string::npos);
  expect_there(s, 0, count);
}

TEST(RecordLimit, LeavesWritesInPlaceAndDeletesAsTheyAre) {
  StoreInRegion s(kRegion, in_frames());
  s.store().arena().limit_to(2 * kFrameBytes);
  const int count = fill_up(s);
  for (int i = 0; i < count; ++i) ASSERT_TRUE(s.put(key_of(i), value_of(i + 1))) << i;
  for (int i = 0; i < count; i += 2) ASSERT_TRUE(s.erase(key_of(i)));
  for (int i = 0; i < count; i += 2) ASSERT_TRUE(s.put(key_of(i), value_of(i))) << i;
  EXPECT_LE(bytes_of(s), 2 * kFrameBytes);
}

TEST(RecordLimit, BelowWhatRecordsHaveTakesNothingAndRefusesMore) {
  StoreInRegion s(kRegion, in_frames());
  const int count = fill(s, 4);
  const uint64_t before = bytes_of(s);
  s.reopen();
  s.store().arena().limit_to(kFrameBytes);
  expect_there(s, 0, count);
  int more = count;
  while (s.put(key_of(more), value_of(more))) ++more;
  EXPECT_EQ(bytes_of(s), before);
  expect_there(s, 0, more);
  // What goes below it does not come back above it.
  erase(s, 0, more);
  give_back(s);
  EXPECT_EQ(extents(s), 1u);
  fill_up(s);
  EXPECT_EQ(extents(s), 1u);
  s.store().arena().limit_to(UINT64_MAX);
  EXPECT_TRUE(s.put("more", value_of(0)));
  EXPECT_EQ(extents(s), 2u);
}

// Without the limit, as recovery is: what is replayed needs no room.
TEST(RecordLimit, RecoveryReadsWhatIsAboveIt) {
  StoreInRegion s(kRegion, in_frames());
  const int count = fill(s, 3);
  s.store().arena().limit_to(kFrameBytes);
  ASSERT_TRUE(s.put(key_of(count - 1), value_of(7)));
  s.reopen();
  EXPECT_EQ(s.store().recovery().live_records, static_cast<uint64_t>(count));
  EXPECT_EQ(s.get(key_of(count - 1))->value, value_of(7));
  EXPECT_TRUE(check_store(s.pool())->sound());
}

TEST(RecordLimit, APoolThatIsFullBelowItSaysSo) {
  StoreInRegion s(kRegion, in_frames());
  s.store().arena().limit_to(kRegion);
  fill_up(s);
  const auto refused = s.put("more", value_of(0));
  EXPECT_EQ(refused.code(), ErrorCode::kFull);
  EXPECT_NE(refused.error().message.find("the pool has no room"), std::string::npos);
}

TEST(RecordReserve, IsThereFromTheBeginningAndStays) {
  FormatOptions format = in_frames();
  format.record_bytes = 3 * kFrameBytes;
  StoreInRegion s(kRegion, format);
  EXPECT_EQ(extents(s), 1u);
  EXPECT_GE(s.store().arena().bytes(), 3 * kFrameBytes);
  // Others take all that they can get.
  while (s.pool().allocate_extent(persist::ExtentKind::kLog,
                                  std::max<uint64_t>(s.pool().largest_free_extent(), 1))) {
  }
  const int count = fill_up(s);
  EXPECT_GT(static_cast<uint64_t>(count) * value_of(0).size(), 2 * kFrameBytes);
  s.reopen();
  expect_there(s, 0, count);
  erase(s, 0, count);
  give_back(s);
  EXPECT_GE(s.store().arena().bytes(), 3 * kFrameBytes);
  s.reopen();
  EXPECT_EQ(fill_up(s), count);
  EXPECT_TRUE(check_store(s.pool())->sound());
}

TEST(RecordReserve, MoreIsTakenAndGivenBackBehindIt) {
  FormatOptions format = in_frames();
  format.record_bytes = 2 * kFrameBytes;
  StoreInRegion s(kRegion, format);
  const int count = fill(s, 3);
  s.reopen();
  expect_there(s, 0, count);
  erase(s, 0, count);
  give_back(s);
  EXPECT_EQ(extents(s), 1u);
  EXPECT_GE(fill(s, 3), count);
}

TEST(RecordReserve, ThatDoesNotFitIsRefused) {
  crash::PageBytes region(kRegion);
  const auto pool = std::move(
      *persist::Pool::in_region(region.bytes(), persist::Domain::kMemoryController, true));
  FormatOptions format = in_frames();
  format.record_bytes = kRegion;
  const Status made = format_store(*pool, format);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.code(), ErrorCode::kFull);
  EXPECT_NE(made.error().message.find("of records at once"), std::string::npos);
}

}  // namespace
}  // namespace pmstore::internal
