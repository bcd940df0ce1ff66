// The shard log: it wraps, is truncated, and says what it knows.
#include "pmstore/shard/shard_log.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/random.h"
#include "pmstore/check.h"
#include "tests/unit/pmstore/shard/store_fixture.h"

namespace pmstore::internal {
namespace {

constexpr uint64_t kSmallLog = 16 << 10;

class ShardLogTest : public ::testing::Test {
 protected:
  static FormatOptions with_log(uint64_t bytes) {
    FormatOptions format{2, 64 << 10};
    format.shard_log_bytes = bytes;
    return format;
  }
  void begin() { first_ = *s_.store().begin_session(); }
  // Transaction `number` of the session.
  Status put(uint64_t number, std::string_view key, std::string_view value) {
    return s_.commit(
        TransactionMessage(first_ + number).write(WriteKind::kPut, s_.table(), key, value));
  }
  Result<Outcome> outcome(uint64_t number) {
    return s_.store().outcome({StoreInRegion::kClient, first_ + number}, false, 0);
  }
  uint64_t start_lsn() { return s_.store().log().ring().position().start_lsn; }

  StoreInRegion s_{2 << 20, with_log(kSmallLog)};
  uint64_t first_ = 0;
};

TEST_F(ShardLogTest, WrapsAndLosesNothing) {
  begin();
  for (uint64_t i = 0; i < 500; ++i) {
    ASSERT_TRUE(put(i, "key" + std::to_string(i % 20), std::to_string(i)));
    if (i % 97 == 0) s_.reopen();
  }
  EXPECT_GT(start_lsn(), 3 * kSmallLog);
  s_.reopen();
  for (uint64_t i = 480; i < 500; ++i) {
    EXPECT_EQ(s_.get("key" + std::to_string(i % 20))->value, std::to_string(i));
  }
  EXPECT_TRUE(check_store(s_.pool())->sound());
}

TEST_F(ShardLogTest, TheLargestTransactionFitsWhereverTheTailIs) {
  begin();
  // When it does not fit its slot, the old slot gets a tombstone.
  const uint64_t tombstone = shard_write_bytes(record_bytes(5, 0));
  const uint64_t header = sizeof(ShardRecordHeader) + sizeof(ShardWrite) + sizeof(RecordHeader);
  const std::string most(s_.store().max_redo_bytes() - header - tombstone - 8, 'x');
  for (uint64_t i = 0; i < 60; ++i) {
    const Status done = put(i, "large", i % 3 == 0 ? std::string(30 * i, 'y') : most);
    ASSERT_TRUE(done) << i << ": " << done.error().to_string();
  }
  const Status refused = put(60, "large", most + std::string(tombstone + 64, 'x'));
  EXPECT_EQ(refused.code(), ErrorCode::kTooLarge);
  EXPECT_NE(refused.error().message.find("--shard-log-bytes"), std::string::npos);
}

// A step that ends in the gap before the end of the data area takes the entry behind it, too.
TEST_F(ShardLogTest, EveryStepMakesTheRoomThatIsNeeded) {
  Random random(3);
  begin();
  const uint64_t most = s_.store().max_redo_bytes();
  for (uint64_t i = 0; i < 3000; ++i) {
    const std::string value(random.below(random.below(3) == 0 ? most - 300 : 300), 'x');
    const Status done = put(i, "key" + std::to_string(i % 3), value);
    ASSERT_TRUE(done) << i << ": " << done.error().to_string();
  }
}

TEST_F(ShardLogTest, KnowsWhatHasLeftItAfterARestartToo) {
  begin();
  ASSERT_TRUE(put(1, "a", "1"));
  ASSERT_TRUE(put(3, "a", "2"));
  ASSERT_TRUE(s_.store().log().truncate_through(UINT64_MAX));
  ASSERT_TRUE(put(5, "a", "3"));
  for (int restarts = 0; restarts < 3; ++restarts) {
    EXPECT_EQ(outcome(1), Outcome::kCommitted);
    EXPECT_EQ(outcome(2), Outcome::kAborted);
    EXPECT_EQ(outcome(3), Outcome::kCommitted);
    EXPECT_EQ(outcome(4), Outcome::kAborted);
    EXPECT_EQ(outcome(5), Outcome::kCommitted);
    if (restarts == 1) {
      ASSERT_TRUE(s_.store().close());
    }
    s_.reopen();
  }
}

TEST_F(ShardLogTest, ATransactionBeyondEverySessionMayStillCommit) {
  begin();
  EXPECT_EQ(
      s_.store().outcome({StoreInRegion::kClient, first_ + (uint64_t{2} << 32)}, false, 0).code(),
      ErrorCode::kInvalidArgument);
}

// The mark is there, the start has not moved: as after a crash in between.
TEST_F(ShardLogTest, TheNextStartEndsATruncationThatWasInterrupted) {
  begin();
  for (uint64_t i = 0; i < 20; ++i) ASSERT_TRUE(put(2 * i, "a", std::to_string(i)));
  const uint64_t tail = s_.store().log().ring().position().tail_lsn;
  std::byte* const header = s_.pool().memory().at(s_.store().log().ring().offset());
  std::vector<std::byte> before(log::kRingHeaderBytes);
  std::memcpy(before.data(), header, before.size());
  ASSERT_TRUE(s_.store().log().truncate_through(UINT64_MAX));
  std::memcpy(header, before.data(), before.size());
  s_.reopen();
  EXPECT_EQ(start_lsn(), tail);
  EXPECT_EQ(outcome(38), Outcome::kCommitted);
  EXPECT_EQ(outcome(37), Outcome::kAborted);
  EXPECT_EQ(s_.get("a")->value, "19");
}

TEST_F(ShardLogTest, AGroupThatFillsItIsFinishedFirst) {
  begin();
  uint64_t number = 0;
  const auto join = [&] {
    const std::string key = "key" + std::to_string(number);
    const auto message = TransactionMessage(first_ + number++)
                             .write(WriteKind::kPut, s_.table(), key, std::string(800, 'x'))
                             .message();
    return s_.store().join_group(*decode_commit(StoreInRegion::kClient, message));
  };
  Status joined;
  while ((joined = join())) {
  }
  ASSERT_EQ(joined.code(), ErrorCode::kBackPressure);
  EXPECT_EQ(start_lsn(), 0u) << "nothing of it is in place";
  ASSERT_TRUE(s_.store().finish_group());
  ASSERT_TRUE(join());
  EXPECT_GT(start_lsn(), 0u);
  ASSERT_TRUE(s_.store().finish_group());
  EXPECT_EQ(s_.store().live_records(), number - 1);
}

// What a server of a later release has left is not guessed at.
TEST_F(ShardLogTest, ARecordOfALaterReleaseIsRefusedWhenThePoolIsOpened) {
  begin();
  ASSERT_TRUE(put(1, "a", "1"));
  {
    log::Ring log = *s_.store().catalog().open_log();
    ASSERT_TRUE(log.walk([](const log::EntryView&) {}));
    ASSERT_TRUE(log.take_over(0));
    ShardRecordHeader header{};
    header.kind = ShardRecordKind{9};
    ASSERT_TRUE(log.append(9, std::as_bytes(std::span(&header, 1))));
  }
  const Status refused = check_startable(s_.pool());
  EXPECT_EQ(refused.code(), ErrorCode::kVersionMismatch);
  EXPECT_NE(refused.error().message.find("kind 9"), std::string::npos);
  EXPECT_EQ(Store::open(s_.pool()).code(), ErrorCode::kVersionMismatch);
  const auto report = check_store(s_.pool());
  ASSERT_TRUE(report);
  EXPECT_FALSE(report->sound());
}

TEST_F(ShardLogTest, TruncationFlushesASlotOnceAndLessThanAllOfALargeLog) {
  StoreInRegion large(16 << 20, with_log(8 << 20));
  for (int i = 0; i < 20'000; ++i) {
    ASSERT_TRUE(large.put("key" + std::to_string(i % 50), std::string(400, 'x')));
  }
  const log::RingPosition position = large.store().log().ring().position();
  EXPECT_GT(position.start_lsn, 0u);
  EXPECT_GT(position.tail_lsn - position.start_lsn, position.data_bytes / 2);
  // Each step of a MiB has flushed 50 records of 8 lines.
  const uint64_t lines = large.pool().memory().stats().flushed_lines;
  EXPECT_LT(lines, 20'000 * 12u + 20 * 50 * 10u + 60'000u);
}

using ShardLogDeathTest = ShardLogTest;

TEST_F(ShardLogDeathTest, OnlyWhatIsDurableIsPutInPlace) {
  begin();
  ASSERT_TRUE(put(1, "a", "1"));
  const auto early = s_.store().log().drain();
  ASSERT_TRUE(early);
  const uint64_t tail = s_.store().log().ring().position().tail_lsn;
  EXPECT_TRUE(early->covers(tail));
  EXPECT_FALSE(early->covers(tail + 1));
  EXPECT_DEATH(s_.store().log().applied(), "before its writes are in place");
}

}  // namespace
}  // namespace pmstore::internal
