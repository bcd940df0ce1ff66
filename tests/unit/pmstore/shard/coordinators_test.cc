// What is known of transactions that have left the shard log.
#include "pmstore/shard/coordinators.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace pmstore::internal {
namespace {

constexpr uint64_t kClient = 7;
constexpr size_t kLargeMark = 1u << 20;

TxId id_of(uint32_t session, uint64_t number, uint64_t client = kClient) {
  return {client, first_sequence_of(session) + number};
}

TEST(Coordinators, WhatHasLeftIsCommittedAndTheRestOfTheSessionIsNot) {
  Coordinators book;
  book.truncated(id_of(1, 3));
  book.truncated(id_of(1, 5));
  EXPECT_EQ(book.outcome(id_of(1, 3)), Outcome::kCommitted);
  EXPECT_EQ(book.outcome(id_of(1, 4)), Outcome::kAborted);
  EXPECT_EQ(book.outcome(id_of(1, 5, kClient + 1)), Outcome::kAborted) << "of another client";
}

TEST(Coordinators, WhatWasDroppedIsNotCalledAbortedAndOtherSessionsLoseNothing) {
  Coordinators book;
  book.truncated(id_of(1, 3));
  for (uint64_t i = 0; i < Coordinators::kNotesPerSession + 10; ++i) {
    book.truncated(id_of(3, 2 * i));
  }
  EXPECT_EQ(book.outcome(id_of(3, 0)), std::nullopt);
  EXPECT_EQ(book.outcome(id_of(3, 1)), std::nullopt);
  EXPECT_EQ(book.outcome(id_of(3, 20)), Outcome::kCommitted);
  EXPECT_EQ(book.outcome(id_of(3, 21)), Outcome::kAborted);
  EXPECT_EQ(book.outcome(id_of(1, 3)), Outcome::kCommitted);
  EXPECT_EQ(book.outcome(id_of(1, 2)), Outcome::kAborted);
}

TEST(Coordinators, AMarkBringsBackWhatIsKnown) {
  Coordinators book;
  for (uint64_t i = 0; i < 3; ++i) book.truncated(id_of(1, 2 * i));
  for (uint64_t i = 0; i < 1000; ++i) book.truncated(id_of(3, i));
  const CoordinatorMark mark = book.mark(4711, kLargeMark);
  EXPECT_EQ(mark.through_lsn, 4711u);
  Coordinators after;
  after.restore(mark);
  EXPECT_EQ(after.outcome(id_of(1, 2)), Outcome::kCommitted);
  EXPECT_EQ(after.outcome(id_of(1, 3)), Outcome::kAborted);
  EXPECT_EQ(after.outcome(id_of(3, 0)), Outcome::kCommitted);
  EXPECT_EQ(after.outcome(id_of(3, 999)), Outcome::kCommitted);
  EXPECT_EQ(after.outcome(id_of(3, 1000)), Outcome::kAborted);
}

TEST(Coordinators, AMarkLeavesOutWhatTheClientKnows) {
  Coordinators book;
  for (uint32_t i = 0; i < 100; ++i) book.truncated(id_of(1, i));
  book.known(id_of(1, 39));
  const CoordinatorMark mark = book.mark(0, kLargeMark);
  ASSERT_EQ(mark.sessions.size(), 1u);
  EXPECT_EQ(mark.sessions[0].committed.size(), 60u);
  Coordinators after;
  after.restore(mark);
  EXPECT_EQ(after.outcome(id_of(1, 39)), std::nullopt) << "never called aborted";
  EXPECT_EQ(after.outcome(id_of(1, 40)), Outcome::kCommitted);
  EXPECT_EQ(after.outcome(id_of(1, 99)), Outcome::kCommitted);
  EXPECT_EQ(after.outcome(id_of(1, 100)), Outcome::kAborted);
  EXPECT_EQ(book.outcome(id_of(1, 39)), Outcome::kCommitted) << "without a restart more is known";
  // What was known stays known, whoever says less later.
  book.truncated(id_of(1, 100));
  book.known(id_of(1, 0));
  EXPECT_EQ(book.mark(0, kLargeMark).sessions[0].committed.size(), 61u);
}

TEST(Coordinators, AMarkWithoutRoomForAllHasTheLastOnesOfEachSession) {
  Coordinators book;
  for (uint32_t session : {1u, 3u, 5u}) {
    for (uint64_t i = 0; i < 100; ++i) book.truncated(id_of(session, i));
  }
  const CoordinatorMark mark = book.mark(0, 1400);
  EXPECT_LE(mark_bytes(mark), 1400u);
  ASSERT_EQ(mark.sessions.size(), 3u);
  Coordinators after;
  after.restore(mark);
  for (uint32_t session : {1u, 3u, 5u}) {
    EXPECT_EQ(after.outcome(id_of(session, 0)), std::nullopt);
    EXPECT_EQ(after.outcome(id_of(session, 60)), Outcome::kCommitted) << session;
    EXPECT_EQ(after.outcome(id_of(session, 99)), Outcome::kCommitted);
    EXPECT_EQ(after.outcome(id_of(session, 100)), Outcome::kAborted);
  }
}

TEST(Coordinators, SessionsThatFitInNoMarkAreForgottenAndNeverCalledAborted) {
  Coordinators book;
  for (uint32_t session = 1; session < 200; session += 2) book.truncated(id_of(session, 3));
  book.truncated(id_of(1, 4));  // it is not the oldest any more
  const CoordinatorMark mark = book.mark(0, 1024);
  EXPECT_LE(mark_bytes(mark), 1024u);
  EXPECT_LT(mark.sessions.size(), 30u);
  EXPECT_EQ(book.sessions(), mark.sessions.size());
  Coordinators after;
  after.restore(mark);
  for (Coordinators* each : {&book, &after}) {
    EXPECT_EQ(each->outcome(id_of(3, 3)), std::nullopt);
    EXPECT_EQ(each->outcome(id_of(3, 4)), std::nullopt);
    EXPECT_NE(each->outcome(id_of(1, 4)), Outcome::kAborted);
    EXPECT_EQ(each->outcome(id_of(199, 4)), Outcome::kAborted);
    EXPECT_EQ(each->outcome(id_of(201, 1)), Outcome::kAborted) << "nothing of it has left";
  }
}

TEST(Coordinators, AllNotesTogetherAreBounded) {
  Coordinators book;
  constexpr uint64_t kSessions = 2 * Coordinators::kNotes / Coordinators::kNotesPerSession;
  for (uint32_t session = 1; session <= kSessions; ++session) {
    for (uint64_t i = 0; i < Coordinators::kNotesPerSession; ++i) book.truncated(id_of(session, i));
  }
  book.mark(0, kLargeMark);
  EXPECT_EQ(book.outcome(id_of(1, 0)), std::nullopt);
  EXPECT_EQ(book.outcome(id_of(1, Coordinators::kNotesPerSession - 1)), Outcome::kCommitted);
}

}  // namespace
}  // namespace pmstore::internal
