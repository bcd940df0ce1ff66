// Transactions of several servers that are left open: pursued by their coordinator, listed, and
// decided without a participant that is lost.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "tests/unit/pmstore/bank.h"

namespace pmstore {
namespace {

using testing::Bank;
using testing::move_money;

constexpr uint64_t kMillisecond = 1'000'000;
const std::vector<uint64_t> kParisIsLost{11};
const std::vector<uint64_t> kRomeIsLost{12};

class OpenTransactionsTest : public testing::TwoBanks {
 protected:
  using TwoBanks::TwoBanks;
  // The coordinator has prepared it everywhere, and is gone.
  TxId leave_prepared() {
    {
      Task<Status> moving = move_money(paris_, rome_, 1);
      moving.start();
      while (paris_.two_phase().at("prepared") == 0 || rome_.two_phase().at("prepared") == 0) {
        let_turns_pass(1);
      }
      paris_.disconnect();
      rome_.disconnect();
      (void)finish(moving);
    }
    paris_.connect();
    rome_.connect();
    const auto open = run(open_transactions({&paris_.client(), &rome_.client()}));
    EXPECT_TRUE(open && open->transactions.size() == 2u);
    return open->transactions[0].name;
  }
  void expect_servers_that_die_are_pursued();
  std::vector<Client*> only(Bank& bank) { return {&bank.client()}; }
};

// Nobody calls settle().
void OpenTransactionsTest::expect_servers_that_die_are_pursued() {
  int left_prepared = 0;
  int aborted = 0;
  bool ended = false;
  for (int turns = 0; !ended; ++turns) {
    for (Bank* const dies : {&paris_, &rome_}) {
      Task<Status> moving = move_money(paris_, rome_, 1);
      moving.start();
      for (int i = 0; i < turns && !moving.done(); ++i) let_turns_pass(1);
      ended = moving.done();
      dies->end_process();
      dies->restart();
      const Status moved = finish(moving);
      left_prepared += paris_.two_phase().at("prepared").get<int>() > 0 ||
                       rome_.two_phase().at("prepared").get<int>() > 0;
      let_time_pass(30'000 * kMillisecond);
      for (int i = 0; i < 3 && !dies->get("account"); ++i) continue;
      expect_whole();
      const bool happened = balance(rome_) > kStart;
      if (moved) {
        EXPECT_TRUE(happened);
      } else if (moved.code() != ErrorCode::kCommitUnknown) {
        EXPECT_FALSE(happened) << moved.error().to_string();
        ++aborted;
      }
      if (happened) {
        ASSERT_TRUE(run(move_money(rome_, paris_, 1)));
        let_time_pass(100 * kMillisecond);
      }
    }
  }
  EXPECT_GT(left_prepared, 0);
  EXPECT_GT(aborted, 0);
}

TEST_F(OpenTransactionsTest, WhatAServerDoesNotAnswerIsPursued) {
  expect_servers_that_die_are_pursued();
}

// A server may die between the redo record and the msync behind which it answers.
class OpenTransactionsOfFiles : public OpenTransactionsTest {
 protected:
  OpenTransactionsOfFiles() : OpenTransactionsTest(persist::Domain::kNone) {}
};
TEST_F(OpenTransactionsOfFiles, WhatAServerDoesNotAnswerIsPursued) {
  expect_servers_that_die_are_pursued();
}

// Its sessions are ended, as by a lease, and others settle: it and they say the same.
TEST_F(OpenTransactionsTest, ACoordinatorThatIsSlowAgreesWithWhoeverSettles) {
  for (Bank* const bank : {&paris_, &rome_}) {
    bank->disconnect();
    bank->connect(77);
  }
  size_t settled_by_others = 0;
  bool ended = false;
  for (int turns = 0; !ended; ++turns) {
    Task<Status> moving = move_money(paris_, rome_, 1);
    moving.start();
    for (int i = 0; i < turns && !moving.done(); ++i) let_turns_pass(1);
    ended = moving.done();
    {
      auto at_paris = paris_.another_client(77);
      auto at_rome = rome_.another_client(77);
      const auto settled = run(settle({at_paris.get(), at_rome.get()}));
      if (settled) settled_by_others += settled->committed + settled->aborted;
    }
    const Status moved = finish(moving);
    let_time_pass(30'000 * kMillisecond);
    expect_whole();
    const bool happened = balance(rome_) > kStart;
    if (moved) {
      EXPECT_TRUE(happened) << turns;
    } else if (moved.code() != ErrorCode::kCommitUnknown) {
      EXPECT_FALSE(happened) << turns << " " << moved.error().to_string();
    }
    if (happened) {
      ASSERT_TRUE(run(move_money(rome_, paris_, 1)));
      let_time_pass(100 * kMillisecond);
    }
  }
  EXPECT_GT(settled_by_others, 0u);
}

TEST_F(OpenTransactionsTest, AreListedWithWhatTheyLock) {
  leave_prepared();
  let_time_pass(5000 * kMillisecond);
  const auto open = run(open_transactions({&rome_.client(), &paris_.client()}));
  ASSERT_TRUE(open);
  ASSERT_EQ(open->transactions.size(), 2u);
  const OpenTransaction& rome = open->transactions[0];
  const OpenTransaction& paris = open->transactions[1];
  EXPECT_EQ(rome.server, 0u);
  EXPECT_EQ(paris.server, 1u);
  EXPECT_FALSE(rome.committed || paris.committed);
  EXPECT_EQ(rome.locked, 1u);
  EXPECT_EQ(paris.locked, 2u) << "an update and an insert";
  EXPECT_GE(rome.age_ms, 5000u);
  EXPECT_LT(rome.age_ms, 60'000u);
  ASSERT_EQ(rome.others.size(), 1u);
  EXPECT_EQ(rome.others[0].pool, paris.pool);
  EXPECT_EQ(rome.others[0].name, paris.name);
  EXPECT_EQ(run(settle({&rome_.client(), &paris_.client()}))->committed, 1u);
  EXPECT_TRUE(run(open_transactions({&rome_.client(), &paris_.client()}))->transactions.empty());
}

TEST_F(OpenTransactionsTest, NothingIsForcedThatCanBeSettled) {
  const TxId name = leave_prepared();
  const auto forced =
      run(force_decision({&paris_.client(), &rome_.client()}, name, ForcedDecision::kAbort, {}));
  EXPECT_EQ(forced.code(), ErrorCode::kConflict);
  EXPECT_EQ(run(force_decision(only(paris_), {name.client, name.sequence + 1000},
                               ForcedDecision::kAbort, kRomeIsLost))
                .code(),
            ErrorCode::kNotFound);
  EXPECT_EQ(run(settle({&paris_.client(), &rome_.client()}))->committed, 1u);
  expect_whole();
}

TEST_F(OpenTransactionsTest, AForcedAbortIsWhatALostServerHearsWhenItComesBack) {
  const TxId name = leave_prepared();
  EXPECT_EQ(run(settle(only(paris_)))->waiting, 1u);
  const auto forced = run(force_decision(only(paris_), name, ForcedDecision::kAbort, kRomeIsLost));
  ASSERT_TRUE(forced) << forced.error().to_string();
  EXPECT_EQ(forced->aborted, 1u);
  EXPECT_EQ(balance(paris_), kStart);
  paris_.restart();
  EXPECT_EQ(paris_.two_phase().at("prepared"), 0) << "it is durable";
  for (int i = 0; i < 3 && !paris_.get("account"); ++i) continue;
  const auto settled = run(settle({&paris_.client(), &rome_.client()}));
  ASSERT_TRUE(settled);
  EXPECT_EQ(settled->aborted, 1u);
  expect_whole();
  EXPECT_EQ(balance(rome_), kStart);
}

TEST_F(OpenTransactionsTest, AForcedCommitIsRememberedForALostServer) {
  const TxId name = leave_prepared();
  const auto force = [&](ForcedDecision decision) {
    return run(force_decision(only(paris_), name, decision, kRomeIsLost));
  };
  EXPECT_EQ(force(ForcedDecision::kForget).code(), ErrorCode::kConflict) << "it is not decided";
  const auto forced = force(ForcedDecision::kCommit);
  ASSERT_TRUE(forced) << forced.error().to_string();
  EXPECT_EQ(forced->committed, 1u);
  EXPECT_EQ(forced->remembered, 1u);
  EXPECT_EQ(balance(paris_), kStart - 1);
  EXPECT_EQ(force(ForcedDecision::kAbort).code(), ErrorCode::kConflict);
  EXPECT_EQ(run(settle({&paris_.client(), &rome_.client()}))->committed, 1u);
  expect_whole();
  EXPECT_EQ(paris_.two_phase().at("committed"), 0);
}

TEST_F(OpenTransactionsTest, WhatIsForgottenIsNotListed) {
  const TxId name = leave_prepared();
  const auto force = [&](ForcedDecision decision) {
    return run(force_decision(only(paris_), name, decision, kRomeIsLost));
  };
  ASSERT_TRUE(force(ForcedDecision::kCommit));
  EXPECT_EQ(paris_.two_phase().at("committed"), 1);
  const auto forgotten = force(ForcedDecision::kForget);
  ASSERT_TRUE(forgotten);
  EXPECT_EQ(forgotten->remembered, 0u);
  EXPECT_EQ(paris_.two_phase().at("committed"), 0);
  EXPECT_EQ(force(ForcedDecision::kForget).code(), ErrorCode::kNotFound);
  // The other server comes back, against the word of the administrator: the outcome is still known.
  EXPECT_EQ(run(settle({&paris_.client(), &rome_.client()}))->committed, 1u);
  expect_whole();
}

// By whoever forced it: then nothing of it is forgotten.
TEST_F(OpenTransactionsTest, WhatWasDecidedBothWaysIsToldAndKept) {
  const TxId name = leave_prepared();
  ASSERT_TRUE(run(force_decision(only(paris_), name, ForcedDecision::kAbort, kRomeIsLost)));
  ASSERT_TRUE(run(force_decision(only(rome_), name, ForcedDecision::kCommit, kParisIsLost)));
  for (int i = 0; i < 2; ++i) {
    const auto settled = run(settle({&paris_.client(), &rome_.client()}));
    ASSERT_TRUE(settled);
    EXPECT_EQ(settled->contradicted, 1u);
    EXPECT_EQ(settled->committed + settled->aborted + settled->waiting + settled->remembered, 0u);
    EXPECT_EQ(rome_.two_phase().at("committed"), 1);
  }
}

// Each meets the other one at every moment.
TEST_F(OpenTransactionsTest, TwoThatSettleAtOnceSayTheSame) {
  bool ended = false;
  for (int turns = 0; !ended; ++turns) {
    leave_prepared();
    auto at_paris = paris_.another_client();
    auto at_rome = rome_.another_client();
    auto one = settle({&paris_.client(), &rome_.client()});
    one.start();
    for (int i = 0; i < turns && !one.done(); ++i) let_turns_pass(1);
    ended = one.done();
    const auto other = run(settle({at_rome.get(), at_paris.get()}));
    const auto first = finish(one);
    ASSERT_TRUE(first && other);
    EXPECT_EQ(first->aborted + other->aborted, 0u) << turns;
    EXPECT_EQ(first->contradicted + other->contradicted, 0u) << turns;
    EXPECT_GT(first->committed + other->committed, 0u) << turns;
    expect_whole();
    ASSERT_EQ(balance(rome_), kStart + 1);
    ASSERT_TRUE(run(move_money(rome_, paris_, 1)));
    let_time_pass(100 * kMillisecond);
  }
}

TEST_F(OpenTransactionsTest, OnlyThoseThatAreLostAreNotAsked) {
  const TxId name = leave_prepared();
  const auto force = [&](std::vector<Client*> clients, std::vector<uint64_t> lost) {
    return run(force_decision(std::move(clients), name, ForcedDecision::kAbort, std::move(lost)));
  };
  for (const auto& lost : {std::vector<uint64_t>{}, kParisIsLost, std::vector<uint64_t>{12, 13}}) {
    EXPECT_EQ(force(only(paris_), lost).code(), ErrorCode::kInvalidArgument);
  }
  rome_.end_process();
  // It was reached, and does not answer: it may only be slow.
  const auto silent = force({&paris_.client(), &rome_.client()}, kRomeIsLost);
  EXPECT_TRUE(silent.code() == ErrorCode::kDisconnected || silent.code() == ErrorCode::kTimeout);
  EXPECT_EQ(paris_.two_phase().at("prepared"), 1);
  EXPECT_TRUE(force({&paris_.client(), &rome_.client()}, kRomeIsLost));
  EXPECT_EQ(paris_.two_phase().at("prepared"), 0);
  rome_.restart();
}

// At every moment: one server has the commit, and the other one is away. However long that takes,
// and whatever the client is told: it is remembered.
TEST_F(OpenTransactionsTest, ACommitIsRememberedUntilEveryServerHasIt) {
  int half_committed = 0;
  bool ended = false;
  for (int turns = 0; !ended; ++turns) {
    for (const bool behind_the_pursuit : {false, true}) {
      Task<Status> moving = move_money(paris_, rome_, 1);
      moving.start();
      for (int i = 0; i < turns && !moving.done(); ++i) let_turns_pass(1);
      ended = moving.done();
      rome_.end_process();
      const Status moved = finish(moving);
      if (behind_the_pursuit) let_time_pass(60'000 * kMillisecond);
      const auto open = run(open_transactions(only(paris_)));
      if (open && !open->transactions.empty() && open->transactions[0].committed && !ended) {
        ++half_committed;
        const auto outcome = run(paris_.client().outcome(open->transactions[0].name));
        ASSERT_TRUE(outcome) << outcome.error().to_string();
        EXPECT_EQ(*outcome, Outcome::kCommitted);
        for (int i = 0; i < 2; ++i) EXPECT_TRUE(paris_.put("other", i));
        EXPECT_EQ(paris_.two_phase().at("committed"), 1) << turns << " " << behind_the_pursuit;
      }
      rome_.restart();
      for (int i = 0; i < 3; ++i) (void)run(settle({&paris_.client(), &rome_.client()}));
      let_time_pass(60'000 * kMillisecond);
      for (int i = 0; i < 3 && !rome_.get("account"); ++i) continue;
      expect_whole();
      if (moved) {
        EXPECT_EQ(balance(rome_), kStart + 1);
      }
      if (balance(rome_) > kStart) {
        ASSERT_TRUE(run(move_money(rome_, paris_, 1)));
        let_time_pass(100 * kMillisecond);
      }
    }
  }
  EXPECT_GT(half_committed, 1);
}

}  // namespace
}  // namespace pmstore
