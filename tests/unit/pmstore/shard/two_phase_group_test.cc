// Steps of transactions of several servers that wait for the drain of their group.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/pmstore/shard/two_phase_fixture.h"

namespace pmstore::internal {
namespace {

TEST(TwoPhase, OneClientLeavesRoomForOthers) {
  FormatOptions format{2, 64 << 10};
  format.shard_log_bytes = 32 << 20;
  StoreInRegion s(64 << 20, format);
  s.begin_session();
  TwoPhase& two_phase = s.store().two_phase();
  const auto lock = [&](size_t key, ClientId client) {
    const auto bytes =
        s.transaction().write(WriteKind::kPut, s.table(), std::to_string(key), "1").message();
    return two_phase.lock(*decode_commit(client, bytes), kOthers, 1);
  };
  for (size_t i = 0; i < TwoPhase::kMostOfClient; ++i) {
    ASSERT_TRUE(lock(i, StoreInRegion::kClient)) << i;
  }
  const Status refused = lock(9999, StoreInRegion::kClient);
  EXPECT_EQ(refused.code(), ErrorCode::kBackPressure);
  EXPECT_NE(refused.error().message.find("this client"), std::string::npos);
  const ClientId other{4, 4};
  EXPECT_TRUE(lock(9999, other));
  EXPECT_TRUE(two_phase.abort({other, s.last_id().sequence}, 0));
  two_phase.give_up_locked_before(2);
  EXPECT_TRUE(two_phase.empty());
  EXPECT_TRUE(lock(1, StoreInRegion::kClient));
  EXPECT_TRUE(two_phase.abort(s.last_id(), 0));
}

TEST_F(TwoPhaseFixture, AStepIsDoneBehindTheDrainOfItsGroup) {
  put_old_values();
  ASSERT_TRUE(lock(put("same", "new")));
  const TxId one = last_;
  ASSERT_TRUE(lock(put("moved", "new")));
  const TxId two = last_;
  ASSERT_TRUE(two_phase().prepare(one, {}, {}));
  ASSERT_TRUE(two_phase().prepare(two, {}, {}));
  const auto alone = put("gone", "new").message();
  ASSERT_TRUE(s_.store().join_group(*decode_commit(StoreInRegion::kClient, alone)));
  EXPECT_EQ(s_.store().group_size(), 3u);
  EXPECT_EQ(two_phase().state(one), State::kLocked) << "it may not be durable";
  EXPECT_TRUE(two_phase().open_transactions().empty());
  // The group has to be finished before anything else happens to them.
  two_phase().end_session(one);
  two_phase().give_up_locked_before(UINT64_MAX);
  EXPECT_EQ(two_phase().prepare(one, {}, {}).code(), ErrorCode::kNotFound);
  EXPECT_EQ(two_phase().state(two), State::kLocked);
  ASSERT_TRUE(s_.store().finish_group());
  EXPECT_EQ(two_phase().state(one), State::kPrepared);
  EXPECT_EQ(two_phase().state(two), State::kPrepared);
  expect("gone", "new");

  ASSERT_TRUE(two_phase().commit(one, 0));
  ASSERT_TRUE(two_phase().abort(two, 0));
  expect_locked("same");
  expect_locked("moved");
  EXPECT_EQ(two_phase().state(one), State::kPrepared);
  EXPECT_EQ(two_phase().state(two), State::kPrepared);
  EXPECT_TRUE(two_phase().is_waiting(one));
  EXPECT_DEATH((void)two_phase().abort(one, 0), "before another decision");
  ASSERT_TRUE(s_.store().finish_group());
  expect("same", "new");
  expect("moved", "old");
  EXPECT_EQ(two_phase().state(one), State::kCommitted);
  EXPECT_FALSE(two_phase().state(two));
}

TEST_F(TwoPhaseFixture, WhatTheGroupIsInTheWayOfIsTriedAgainBehindIt) {
  ASSERT_TRUE(s_.put("read", "1"));
  const GetReply read = s_.get("read")->reply;
  ASSERT_TRUE(lock(put("written", "1")));
  const auto alone = put("read", "1").message();
  ASSERT_TRUE(s_.store().join_group(*decode_commit(StoreInRegion::kClient, alone)));
  const std::vector<ReadCheck> reads = {{read.slot, read.version}};
  const auto bytes = std::as_bytes(std::span(reads));
  EXPECT_EQ(two_phase().prepare(last_, bytes, {}).code(), ErrorCode::kConflict);
  EXPECT_EQ(two_phase().state(last_), State::kLocked) << "the group may fail";
  ASSERT_TRUE(s_.store().finish_group());
  EXPECT_EQ(two_phase().prepare(last_, bytes, {}).code(), ErrorCode::kConflict);
  EXPECT_FALSE(two_phase().state(last_));
}

// What is logged and not done keeps the log as it is.
TEST_F(TwoPhaseFixture, TheLogIsNotTruncatedAmidAGroup) {
  ASSERT_TRUE(lock(put("same", "new")));
  ASSERT_TRUE(two_phase().prepare(last_, {}, {}));
  Status joined;
  for (int i = 0; joined && i < 10'000; ++i) {
    if (s_.store().cpu().group_size() == CpuCommit::kMostPrepared) break;
    const auto bytes = put("k" + std::to_string(i), std::string(3000, 'v')).message();
    joined = s_.store().join_group(*decode_commit(StoreInRegion::kClient, bytes));
  }
  EXPECT_EQ(joined.code(), ErrorCode::kBackPressure);
  ASSERT_TRUE(s_.store().finish_group());
  EXPECT_EQ(two_phase().state(last_), State::kPrepared);
}

}  // namespace
}  // namespace pmstore::internal
