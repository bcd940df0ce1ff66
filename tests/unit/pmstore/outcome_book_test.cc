#include "pmstore/shard/outcome_book.h"

#include <gtest/gtest.h>

namespace pmstore::internal {
namespace {

constexpr uint64_t kClient = 7;

TEST(OutcomeBook, WhatWasTruncatedIsCommittedAndTheRestOfTheSessionIsNot) {
  OutcomeBook book(2);
  book.begin_session(1, 100, 1000);
  book.truncated(1, 104);
  book.truncated(1, 102);
  EXPECT_EQ(book.noted(1, 102), Outcome::kCommitted);
  EXPECT_EQ(book.noted(1, 104), Outcome::kCommitted);
  EXPECT_EQ(book.noted(1, 103), Outcome::kAborted);
  EXPECT_EQ(book.noted(1, 99), std::nullopt) << "of an earlier session";
  EXPECT_EQ(book.noted(1, 1000), std::nullopt) << "of no session";
  book.truncated(1, 50);
  book.truncated(1, 1001);
  EXPECT_EQ(book.noted(1, 50), std::nullopt);
  EXPECT_EQ(book.noted(1, 1001), std::nullopt);
}

TEST(OutcomeBook, NotesAreBoundedAndWhatWasDroppedIsNotCalledAborted) {
  OutcomeBook book(1);
  book.begin_session(0, 0);
  for (uint64_t i = 0; i < OutcomeBook::kNotes + 10; ++i) book.truncated(0, 2 * i);
  EXPECT_EQ(book.noted(0, 0), std::nullopt);
  EXPECT_EQ(book.noted(0, 1), std::nullopt);
  EXPECT_EQ(book.noted(0, 18), std::nullopt);
  EXPECT_EQ(book.noted(0, 19), Outcome::kAborted);
  EXPECT_EQ(book.noted(0, 20), Outcome::kCommitted);
}

TEST(OutcomeBook, ASealedSessionIsKnownUntilItsTimeWhateverTheNextOneDoes) {
  OutcomeBook book(1);
  book.begin_session(0, 100);
  book.truncated(0, 101);
  book.seal(0, kClient, 200, {103}, 5000, 0);
  book.begin_session(0, 200);
  for (uint64_t i = 200; i < 300 + OutcomeBook::kNotes; ++i) book.truncated(0, i);
  const auto ask = [&](uint64_t sequence, uint64_t now_ns) {
    return book.sealed({kClient, sequence}, now_ns);
  };
  EXPECT_EQ(ask(101, 4999), Outcome::kCommitted);
  EXPECT_EQ(ask(102, 4999), Outcome::kAborted);
  EXPECT_EQ(ask(103, 4999), Outcome::kCommitted);
  EXPECT_EQ(ask(99, 4999), std::nullopt);
  EXPECT_EQ(ask(200, 4999), std::nullopt) << "of the next session";
  EXPECT_EQ(book.sealed({kClient + 1, 101}, 0), std::nullopt);
  EXPECT_EQ(ask(101, 5000), std::nullopt);
}

TEST(OutcomeBook, OneClientThatComesAndGoesDoesNotPushOutAnother) {
  OutcomeBook book(1);
  book.seal(0, kClient, 10, {3}, 5000, 0);
  for (uint64_t i = 1; i < 10 * OutcomeBook::kSealedPerClient; ++i) {
    book.begin_session(0, 10 * i);
    book.seal(0, kClient + 1, 10 * i + 10, {10 * i + 1}, 5000, 0);
  }
  EXPECT_EQ(book.sealed({kClient, 3}, 0), Outcome::kCommitted);
  EXPECT_EQ(book.sealed({kClient + 1, 11}, 0), std::nullopt);
  EXPECT_EQ(book.sealed({kClient + 1, 10 * (10 * OutcomeBook::kSealedPerClient - 1) + 1}, 0),
            Outcome::kCommitted);
  for (uint64_t client = 100; client < 100 + OutcomeBook::kSealedPerRing; ++client) {
    book.seal(0, client, UINT64_MAX, {}, 5000, 0);
  }
  EXPECT_EQ(book.sealed({kClient, 3}, 0), std::nullopt) << "bounded in all";
}

}  // namespace
}  // namespace pmstore::internal
