#include "pmstore/client/transaction_numbers.h"

#include <gtest/gtest.h>

#include "pmstore/client/item_set.h"

namespace pmstore::internal {
namespace {

constexpr uint64_t kClient = 7;

TEST(TransactionNumbers, ASessionGivesEachNumberOnce) {
  TransactionNumbers numbers(kClient);
  EXPECT_FALSE(numbers.available());
  ASSERT_TRUE(numbers.begin_session(5));
  EXPECT_EQ(numbers.take(), (TxId{kClient, 5}));
  EXPECT_EQ(numbers.take(), (TxId{kClient, 6}));
  ASSERT_TRUE(numbers.begin_session(1));
  EXPECT_EQ(numbers.take(), (TxId{kClient, 7})) << "numbers never fall";
}

TEST(TransactionNumbers, WhatIsBehindADoubtIsHeldBack) {
  TransactionNumbers numbers(kClient);
  ASSERT_TRUE(numbers.begin_session(1));
  const auto end_next = [&] {
    const TxId id = numbers.take();
    TransactionNumbers::Running(numbers, id.sequence).settled();
    return id.sequence;
  };
  EXPECT_FALSE(numbers.is_held_back(end_next()));
  {
    TransactionNumbers::Running slow(numbers, numbers.take().sequence);
    for (uint64_t i = 1; i < TransactionNumbers::kMostBehind; ++i) {
      EXPECT_FALSE(numbers.is_held_back(end_next()));
    }
    EXPECT_TRUE(numbers.is_held_back(end_next()));
    slow.settled();
  }
  EXPECT_FALSE(numbers.is_held_back(end_next()));
  const TxId lost = numbers.take();
  { TransactionNumbers::Running no_answer(numbers, lost.sequence); }
  EXPECT_TRUE(numbers.is_held_back(lost.sequence));
  EXPECT_TRUE(numbers.is_held_back(end_next()));
  numbers.resolve(lost);
  EXPECT_FALSE(numbers.is_held_back(end_next()));
}

// Neither its own outcome nor many doubts behind it let a server forget it.
TEST(TransactionNumbers, WhatIsHeldIsNotKnown) {
  TransactionNumbers numbers(kClient);
  ASSERT_TRUE(numbers.begin_session(1));
  const auto known = numbers.known_through();
  const auto leave_in_doubt = [&] {
    const TxId id = numbers.take();
    { const TransactionNumbers::Running no_answer(numbers, id.sequence); }
    return id;
  };
  const TxId one = leave_in_doubt();
  {
    const TransactionNumbers::Held held(numbers, one.sequence);
    numbers.resolve(one);
    EXPECT_LT(*known, one.sequence);
    EXPECT_FALSE(numbers.nothing_in_doubt());
    std::vector<TxId> others;
    for (size_t i = 0; i <= TransactionNumbers::kMaxDoubts; ++i) others.push_back(leave_in_doubt());
    for (const TxId each : others) numbers.resolve(each);
    EXPECT_LT(*known, one.sequence);
    EXPECT_TRUE(numbers.is_held_back(others.front().sequence));
  }
  EXPECT_TRUE(numbers.nothing_in_doubt());
  EXPECT_GT(*known, one.sequence);
}

TEST(TransactionNumbers, ServerThatIsFarBehindIsRefused) {
  TransactionNumbers numbers(kClient);
  ASSERT_TRUE(numbers.begin_session(2 * kSessionSequences));
  const Status refused = numbers.begin_session(1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.code(), ErrorCode::kProtocol);
  EXPECT_TRUE(numbers.available()) << "a refused session changes nothing";
}

TEST(TransactionNumbers, RetiredNumberIsNeverTaken) {
  TransactionNumbers numbers(kClient);
  ASSERT_TRUE(numbers.begin_session(1));
  EXPECT_TRUE(numbers.retire(9));
  EXPECT_EQ(numbers.take().sequence, 10u);
  EXPECT_FALSE(numbers.retire(1 + kSessionSequences)) << "it is beyond those of the session";
}

TEST(TransactionNumbers, CommitThatIsDestroyedUnsettledIsInDoubt) {
  TransactionNumbers numbers(kClient);
  ASSERT_TRUE(numbers.begin_session(1));
  const TxId settled = numbers.take();
  {
    TransactionNumbers::Running running(numbers, settled.sequence);
    EXPECT_TRUE(numbers.is_running(settled));
    EXPECT_FALSE(numbers.is_running(TxId{kClient + 1, settled.sequence}));
    running.settled();
  }
  EXPECT_TRUE(numbers.nothing_running());
  EXPECT_TRUE(numbers.nothing_in_doubt());
  const TxId doubtful = numbers.take();
  { const TransactionNumbers::Running running(numbers, doubtful.sequence); }
  EXPECT_FALSE(numbers.nothing_in_doubt());
  numbers.resolve(doubtful);
  EXPECT_TRUE(numbers.nothing_in_doubt());
}

// What the server need not keep for this client.
TEST(TransactionNumbers, OutcomesAreKnownBelowTheOldestThatIsOpen) {
  constexpr uint64_t kFirst = uint64_t{3} << 32;
  TransactionNumbers numbers(kClient);
  ASSERT_TRUE(numbers.begin_session(kFirst));
  const auto known = numbers.known_through();
  EXPECT_LT(*known, kFirst) << "there is nothing to know";
  for (int i = 0; i < 6; ++i) numbers.take();
  {
    TransactionNumbers::Running oldest(numbers, kFirst + 3);
    {
      TransactionNumbers::Running another(numbers, kFirst + 5);
      another.settled();
    }
    EXPECT_EQ(*known, kFirst + 2);
    oldest.settled();
  }
  EXPECT_EQ(*known, kFirst + 5);
  { const TransactionNumbers::Running doubtful(numbers, numbers.take().sequence); }
  { const TransactionNumbers::Running doubtful(numbers, numbers.take().sequence); }
  EXPECT_EQ(*known, kFirst + 5);
  numbers.resolve({kClient, kFirst + 6});
  EXPECT_EQ(*known, kFirst + 6);
  // Of the next session, which is numbered by itself.
  constexpr uint64_t kNext = uint64_t{5} << 32;
  ASSERT_TRUE(numbers.begin_session(kNext));
  EXPECT_EQ(*known, kNext - 1);
  {
    TransactionNumbers::Running running(numbers, numbers.take().sequence);
    running.settled();
  }
  EXPECT_EQ(*known, kNext) << "whatever is in doubt of the session before";
}

TEST(TransactionNumbersDeathTest, InvariantsAreChecked) {
  TransactionNumbers numbers(kClient);
  EXPECT_DEATH((void)numbers.take(), "only while the session has one");
  EXPECT_DEATH(TransactionNumbers::Running(numbers, 1), "takes its number before it runs");
  ASSERT_TRUE(numbers.begin_session(1));
  const TxId id = numbers.take();
  TransactionNumbers::Running running(numbers, id.sequence);
  EXPECT_DEATH(numbers.resolve(id), "outcome of a running commit");
  running.settled();
  EXPECT_DEATH(running.settled(), "settled once");
}

TEST(ItemSet, KeepsOneItemPerKeyAndTheLastValue) {
  ItemSet items;
  const KeyHash hash = hash_key(TableId{1}, "alice");
  TxItem& item = items.find_or_add(TableId{1}, "alice", hash);
  items.set_value(item, "ninety");
  items.set_value(item, "9");
  EXPECT_EQ(items.value(item), "9");
  items.set_value(item, "a longer one");
  EXPECT_EQ(&items.find_or_add(TableId{1}, "alice", hash), &items[0]);
  EXPECT_EQ(items.size(), 1u);
  EXPECT_EQ(items.key(items[0]), "alice");
  EXPECT_EQ(items.value(items[0]), "a longer one");
  EXPECT_EQ(items.find(TableId{2}, "alice", hash), nullptr);
}

TEST(ItemSetDeathTest, ForeignItemsAreRefused) {
  ItemSet items;
  TxItem foreign{};
  foreign.key_offset = 1;
  foreign.key_bytes = 1;
  EXPECT_DEATH((void)items.key(foreign), "lie in the bytes of its set");
  EXPECT_DEATH(items.set_value(foreign, "x"), "belongs to this set");
}

}  // namespace
}  // namespace pmstore::internal
