// Whose ring it is, and what is said of the transactions of those whose ring it was.
#include <gtest/gtest.h>

#include "tests/unit/pmstore/shard/store_fixture.h"

namespace pmstore::internal {
namespace {

// What has landed in the ring is behind its tail.
Status note_landed(StoreInRegion& s) {
  uint64_t tail = 0;
  s.ring().for_each_landed([&](const log::EntryView& entry) { tail = entry.next_lsn; });
  return s.ring().note_tail(tail);
}

// Neither from the log nor from the notes of the ring that the client has now.
TEST(StoreRings, TransactionThatLeftWithItsRingIsExpiredNotAbortedInTheNextRingOfItsClient) {
  constexpr uint64_t kHere = 5;
  constexpr uint64_t kOther = 6;
  StoreInRegion s(2 << 20);
  Store& store = s.store();
  ASSERT_TRUE(s.put("alice", "0"));
  ASSERT_TRUE(store.take_ring(0, kHere, 0, 0));
  const TxId id{kHere, store.session_sequence(0)};
  s.land({{"alice", "1"}}, id.sequence);
  ASSERT_TRUE(note_landed(s));
  ASSERT_EQ(*store.outcome(id, false, 0), Outcome::kCommitted);
  ASSERT_TRUE(store.take_ring(0, kOther, 0, 0));
  ASSERT_TRUE(store.take_ring(1, kHere, 0, 0));
  EXPECT_EQ(store.outcome(id, false, 0).code(), ErrorCode::kOutcomeExpired);
}

// A redo record may have been forged with a number that the next session in this ring will use.
TEST(StoreRings, ANewOwnerFindsNothingOfTheClientBefore) {
  constexpr uint64_t kHere = 5;
  constexpr uint64_t kOther = 6;
  StoreInRegion s(2 << 20);
  Store& store = s.store();
  ASSERT_TRUE(s.put("alice", "0"));
  ASSERT_TRUE(store.take_ring(0, kHere, 0, 0));
  const uint64_t session = store.session_sequence(0);
  const uint64_t next_session = session + 2 * first_sequence_of(1);  // even ones are of rings
  s.land({{"alice", "1"}}, next_session);
  ASSERT_TRUE(note_landed(s));
  ASSERT_TRUE(store.take_ring(0, kOther, 0, 0));
  ASSERT_EQ(store.session_sequence(0), next_session);
  EXPECT_EQ(s.ring().position().start_lsn, s.ring().position().tail_lsn);
  EXPECT_EQ(store.outcome({kOther, next_session}, false, 0), Outcome::kAborted);
}

TEST(StoreRings, WhatWasTruncatedIsCommittedInItsSessionAndExpiredAfterARestart) {
  StoreInRegion s(2 << 20);
  ASSERT_TRUE(s.put("alice", "0"));
  const TxId id{StoreInRegion::kClient, s.store().session_sequence(0)};
  s.land({{"alice", "1"}}, id.sequence);
  ASSERT_TRUE(note_landed(s));
  ASSERT_TRUE(s.store().truncate_through(s.ring(), UINT64_MAX));
  EXPECT_EQ(s.store().outcome(id, false, 0), Outcome::kCommitted);
  const TxId next{id.client, id.sequence + 1};
  EXPECT_EQ(s.store().outcome(next, false, 0), Outcome::kAborted);
  s.reopen();
  EXPECT_EQ(s.store().outcome(id, false, 0).code(), ErrorCode::kOutcomeExpired)
      << "the notes are gone; its ring says only that it is older than what it kept";
}

TEST(StoreRings, ATailInsideARedoRecordIsRefusedBeforeAnythingIsFlushed) {
  StoreInRegion s(2 << 20);
  Store& store = s.store();
  ASSERT_TRUE(s.put("alice", "1"));
  ASSERT_TRUE(store.truncate_through(s.ring(), UINT64_MAX));
  const uint64_t start = s.ring().position().start_lsn;
  s.land({{"alice", "2"}});
  ASSERT_TRUE(s.ring().note_tail(start + 64));
  const persist::MemoryStats before = s.pool().memory().stats();
  EXPECT_EQ(store.truncate_through(s.ring(), UINT64_MAX).code(), ErrorCode::kInvalidArgument);
  const persist::MemoryStats after = s.pool().memory().stats();
  EXPECT_EQ(after.flushed_lines, before.flushed_lines);
  EXPECT_EQ(after.drains, before.drains);
  EXPECT_EQ(s.ring().position().start_lsn, start);
  // The end of the record is a tail.
  const auto record = s.ring().entry_at(start);
  ASSERT_TRUE(record);
  ASSERT_GT(record->next_lsn, start + 64);
  ASSERT_TRUE(s.ring().note_tail(record->next_lsn));
  ASSERT_TRUE(store.truncate_through(s.ring(), UINT64_MAX));
  EXPECT_EQ(s.ring().position().start_lsn, record->next_lsn);
}

TEST(StoreRings, TruncationStopsAtTheLsnAndLeavesTheRestInTheRing) {
  StoreInRegion s(2 << 20);
  ASSERT_TRUE(s.put("alice", "0"));
  ASSERT_TRUE(s.put("bob", "0"));
  s.land({{"alice", "1"}});
  ASSERT_TRUE(note_landed(s));
  const uint64_t second = s.ring().position().tail_lsn;
  s.land({{"bob", "2"}});
  ASSERT_TRUE(note_landed(s));
  const uint64_t tail = s.ring().position().tail_lsn;
  ASSERT_TRUE(s.store().truncate_through(s.ring(), second));
  EXPECT_EQ(s.ring().position().start_lsn, second);
  EXPECT_EQ(s.ring().position().tail_lsn, tail);
  EXPECT_TRUE(s.ring().entry_at(second));
}

}  // namespace
}  // namespace pmstore::internal
