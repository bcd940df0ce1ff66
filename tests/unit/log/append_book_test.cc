#include "log/internal/append_book.h"

#include <gtest/gtest.h>

namespace pmstore::log::internal {
namespace {

const AppendOrigin kClient{ClientId(7, 1), 5};

AppendOrigin origin(uint64_t low, uint64_t high) { return {ClientId(low, high), 1}; }
AppendReply reply_of(uint64_t index) {
  AppendReply reply{};
  reply.first.index = reply.last.index = index;
  return reply;
}
uint64_t index_in(const Result<std::optional<AppendReply>>& answer) {
  return answer && *answer ? (*answer)->last.index : 0;
}
bool is_new(const Result<std::optional<AppendReply>>& answer) { return answer && !*answer; }

TEST(AppendBook, GivesTheAnswerOfAnAppendThatIsRepeated) {
  AppendBook book;
  book.came(kClient, 0);
  EXPECT_FALSE(book.may_be_repeated(kClient, 1));
  EXPECT_TRUE(is_new(book.repeated(kClient, 1)));
  EXPECT_TRUE(book.may_be_repeated(kClient, 1)) << "it may wait for its drain";
  EXPECT_TRUE(is_new(book.repeated(kClient, 1))) << "it has failed";
  book.executed(kClient, 1, reply_of(10));
  EXPECT_EQ(index_in(book.repeated(kClient, 1)), 10u);
  EXPECT_TRUE(is_new(book.repeated(kClient, 2)));
}

TEST(AppendBook, NumbersOfOneThatFollowsAreItsOwn) {
  AppendBook book;
  const AppendOrigin other{ClientId(7, 1), 6};
  book.came(kClient, 0);
  book.came(other, 0);
  book.executed(kClient, 1, reply_of(10));
  EXPECT_TRUE(is_new(book.repeated(other, 1)));
}

TEST(AppendBook, WhatTheClientKnowsIsNeverExecutedAgain) {
  AppendBook book;
  book.came(kClient, 0);
  book.executed(kClient, 1, reply_of(10));
  book.executed(kClient, 3, reply_of(11));
  book.known(kClient, 2);
  EXPECT_TRUE(is_new(book.repeated(kClient, 4)));
  EXPECT_EQ(book.repeated(kClient, 1).code(), ErrorCode::kOutcomeExpired);
  EXPECT_EQ(book.repeated(kClient, 2).code(), ErrorCode::kOutcomeExpired);
  EXPECT_EQ(index_in(book.repeated(kClient, 3)), 11u);
}

TEST(AppendBook, KeepsNoAnswerThatTheClientHas) {
  AppendBook book;
  book.came(kClient, 0);
  for (uint64_t number = 1; number <= 100; ++number) {
    book.known(kClient, number - 1);
    EXPECT_TRUE(is_new(book.repeated(kClient, number)));
    book.executed(kClient, number, reply_of(number));
    EXPECT_EQ(book.answers(), 1u);
  }
}

TEST(AppendBook, KeepsSoManyAnswersAndNeverExecutesTheOthers) {
  AppendBook book;
  book.came(kClient, 0);
  constexpr uint64_t kKept = AppendBook::kAppendsPerClient;
  for (uint64_t number = 1; number <= kKept + 2; ++number) {
    EXPECT_TRUE(is_new(book.repeated(kClient, number)));
    book.executed(kClient, number, reply_of(number));
  }
  EXPECT_EQ(book.repeated(kClient, 1).code(), ErrorCode::kOutcomeExpired);
  EXPECT_EQ(book.repeated(kClient, 2).code(), ErrorCode::kOutcomeExpired);
  EXPECT_EQ(index_in(book.repeated(kClient, 3)), 3u);
  EXPECT_EQ(index_in(book.repeated(kClient, kKept + 2)), kKept + 2);
}

TEST(AppendBook, ClientsThatWentAreKeptAsLongAsThereIsRoom) {
  AppendBook book;
  book.came(kClient, 0);
  book.executed(kClient, 1, reply_of(10));
  book.left(kClient);
  for (uint64_t i = 1; i < AppendBook::kAbsentClients; ++i) {
    book.came(origin(i, 9), 0);
    book.left(origin(i, 9));
  }
  book.came(kClient, 0);
  EXPECT_EQ(index_in(book.repeated(kClient, 1)), 10u);
  // One who is here is not forgotten, however many come and go.
  for (uint64_t i = 1; i <= 2 * AppendBook::kAbsentClients; ++i) {
    book.came(origin(i, 10), 0);
    book.left(origin(i, 10));
  }
  EXPECT_EQ(index_in(book.repeated(kClient, 1)), 10u);
  EXPECT_EQ(book.clients(), AppendBook::kAbsentClients + 1);
  book.left(kClient);
  for (uint64_t i = 1; i <= AppendBook::kAbsentClients; ++i) {
    book.came(origin(i, 11), 0);
    book.left(origin(i, 11));
  }
  book.executed(kClient, 2, reply_of(11));  // nobody asks for it any more
  book.came(kClient, 2);
  EXPECT_EQ(book.repeated(kClient, 1).code(), ErrorCode::kOutcomeExpired) << "it was executed";
  EXPECT_EQ(book.repeated(kClient, 2).code(), ErrorCode::kOutcomeExpired);
  EXPECT_TRUE(is_new(book.repeated(kClient, 3))) << "never sent before";
}

}  // namespace
}  // namespace pmstore::log::internal
