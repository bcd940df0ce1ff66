// Transactions of two servers: commits, conflicts, coordinators that are gone, servers that are.
#include "pmstore/joint_commit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "tests/unit/pmstore/bank.h"

namespace pmstore {
namespace {

using testing::Bank;
using testing::move_money;

class JointCommit : public testing::TwoBanks {
 protected:
  Settled settle_all() {
    auto settled = run(settle({&paris_.client(), &rome_.client()}));
    // A client learns by its next request that its server was started again.
    const auto all_asked = [&] {
      return settled && std::all_of(settled->servers.begin(), settled->servers.end(),
                                    [](const Status& server) { return server.has_value(); });
    };
    Settled sum;
    for (int i = 0; i < 2 && !all_asked(); ++i) {
      if (settled) {
        sum.committed += settled->committed;
        sum.aborted += settled->aborted;
      }
      settled = run(settle({&paris_.client(), &rome_.client()}));
    }
    EXPECT_TRUE(settled) << settled.error().to_string();
    if (!settled) return sum;
    EXPECT_TRUE(all_asked());
    settled->committed += sum.committed;
    settled->aborted += sum.aborted;
    return *settled;
  }
};

TEST_F(JointCommit, BothServersHaveItAndForgetIt) {
  ASSERT_TRUE(run(move_money(paris_, rome_, 30)));
  EXPECT_EQ(balance(paris_), 70);
  EXPECT_EQ(balance(rome_), 130);
  expect_whole();
  // The next request says that the outcome is known.
  ASSERT_TRUE(run(move_money(rome_, paris_, 10)));
  for (Bank* const bank : {&paris_, &rome_}) {
    ASSERT_TRUE(bank->put("other", 1));
    EXPECT_EQ(bank->two_phase().at("committed"), 0);
    EXPECT_EQ(bank->two_phase().at("log_bytes"), 0);
    bank->restart();
    EXPECT_EQ(bank->two_phase().at("prepared"), 0);
  }
  EXPECT_EQ(balance(paris_), 80);
}

TEST_F(JointCommit, WhatHasChangedAtOneServerIsAConflictAtBoth) {
  std::vector<Transaction> both;
  both.push_back(paris_.client().begin());
  both.push_back(rome_.client().begin());
  ASSERT_TRUE(run(both[0].get(paris_.table(), "account")));
  ASSERT_TRUE(run(both[1].get(rome_.table(), "account")));
  both[0].put(paris_.table(), "new", "1");
  both[1].put(rome_.table(), "new", "1");
  ASSERT_TRUE(rome_.put("account", 90));
  EXPECT_EQ(run(commit_together(std::move(both))).code(), ErrorCode::kConflict);
  EXPECT_EQ(paris_.get("new").code(), ErrorCode::kNotFound);
  EXPECT_EQ(rome_.get("new").code(), ErrorCode::kNotFound);
  EXPECT_EQ(paris_.two_phase().at("log_bytes"), 0);
}

// Each reads what the other one writes, elsewhere.
TEST_F(JointCommit, OfTwoThatReadWhatTheOtherWritesOneCommits) {
  const auto half = [](Bank& reads, Bank& writes) -> Task<Status> {
    std::vector<Transaction> both;
    both.push_back(reads.client().begin());
    both.push_back(writes.client().begin());
    const auto seen = co_await both[0].get(reads.table(), "account");
    if (!seen) co_return seen.error();
    both[1].put(writes.table(), "account", std::to_string(std::stoi(*seen) - kStart));
    co_return co_await commit_together(std::move(both));
  };
  Task<Status> one = half(paris_, rome_);
  Task<Status> other = half(rome_, paris_);
  one.start();
  other.start();
  const Status first = finish(one);
  const Status second = finish(other);
  EXPECT_FALSE(first && second) << "one of them has read what is not there any more";
  for (const Status& each : {first, second}) {
    EXPECT_TRUE(each || each.code() == ErrorCode::kConflict) << each.error().to_string();
  }
}

TEST_F(JointCommit, ReadsAtOneServerAndWritesAtAnotherAreOneTransaction) {
  for (const bool changes : {false, true}) {
    std::vector<Transaction> both;
    both.push_back(paris_.client().begin());
    both.push_back(rome_.client().begin());
    ASSERT_TRUE(run(both[0].get(paris_.table(), "account")));
    both[1].put(rome_.table(), "copy", "1");
    if (changes) {
      ASSERT_TRUE(paris_.put("account", 1));
    }
    const Status done = run(commit_together(std::move(both)));
    EXPECT_EQ(done.has_value(), !changes);
    if (!done) {
      EXPECT_EQ(done.code(), ErrorCode::kConflict);
    }
    EXPECT_EQ(rome_.get("copy").has_value(), true);
    EXPECT_EQ(rome_.two_phase().at("locked"), 0);
  }
  std::vector<Transaction> reads;
  reads.push_back(paris_.client().begin());
  reads.push_back(rome_.client().begin());
  ASSERT_TRUE(run(reads[0].get(paris_.table(), "account")));
  ASSERT_TRUE(run(reads[1].get(rome_.table(), "account")));
  ASSERT_TRUE(paris_.put("account", 2));
  EXPECT_EQ(run(commit_together(std::move(reads))).code(), ErrorCode::kConflict);
}

// At every suspension of the commit: its caller goes, with the client or without it.
TEST_F(JointCommit, WhoeverDestroysItLeavesItWhole) {
  size_t committed = 0;
  bool ended = false;
  for (int turns = 0; !ended; ++turns) {
    for (const bool with_client : {false, true}) {
      {
        Task<Status> moving = move_money(paris_, rome_, 1);
        moving.start();
        for (int i = 0; i < turns && !moving.done(); ++i) let_turns_pass(1);
        ended = moving.done();
      }
      if (!with_client) let_turns_pass(100);  // the commit goes on
      if (with_client) {
        paris_.disconnect();
        rome_.disconnect();
        paris_.connect();
        rome_.connect();
      }
      const Settled settled = settle_all();
      EXPECT_EQ(settled.waiting, 0u) << turns;
      committed += settled.committed;
      expect_whole();
      ASSERT_TRUE(run(move_money(rome_, paris_, 1))) << turns;
    }
  }
  EXPECT_GT(committed, 0u);
}

// At every moment of the commit: one server dies, or both do, and comes back.
TEST_F(JointCommit, AServerThatDiesAndComesBackHasAllOfItOrNothing) {
  size_t unknown = 0;
  Settled later;
  bool ended = false;
  for (int turns = 0; !ended; ++turns) {
    for (const int dies : {1, 2, 3}) {
      Task<Status> moving = move_money(paris_, rome_, 1);
      moving.start();
      for (int i = 0; i < turns && !moving.done(); ++i) let_turns_pass(1);
      ended = moving.done();
      if ((dies & 1) != 0) paris_.restart();
      if ((dies & 2) != 0) rome_.restart();
      const Status done = finish(moving);
      const int before = kStart;
      const Settled settled = settle_all();
      EXPECT_EQ(settled.waiting, 0u) << turns << " " << dies;
      later.committed += settled.committed;
      later.aborted += settled.aborted;
      expect_whole();
      const bool moved = balance(rome_) == before + 1;
      if (done) {
        EXPECT_TRUE(moved) << turns << " " << dies;
      } else if (done.code() == ErrorCode::kCommitUnknown) {
        ++unknown;
      } else {
        EXPECT_FALSE(moved) << turns << " " << dies << " " << done.error().to_string();
      }
      if (moved) {
        ASSERT_TRUE(run(move_money(rome_, paris_, 1)));
      }
    }
  }
  EXPECT_GT(later.committed, 0u);
}

TEST_F(JointCommit, ManyTransfersBothWaysKeepTheSum) {
  const auto transfers = [](Bank& from, Bank& to, int count) -> Task<int> {
    int done = 0;
    for (int i = 0; i < count; ++i) {
      const Status moved = co_await move_money(from, to, 1);
      EXPECT_TRUE(moved || moved.code() == ErrorCode::kConflict) << moved.error().to_string();
      done += moved ? 1 : 0;
      Executor& executor = from.client().executor();
      co_await executor.sleep_for(executor.random().below(50'000));
    }
    co_return done;
  };
  std::vector<Task<int>> all;
  for (int i = 0; i < 4; ++i) {
    all.push_back(transfers(paris_, rome_, 50));
    all.push_back(transfers(rome_, paris_, 50));
  }
  for (auto& each : all) each.start();
  int done = 0;
  for (auto& each : all) done += finish(each);
  EXPECT_GT(done, 50);
  expect_whole();
}

// One server has prepared it, the other one never will.
TEST_F(JointCommit, WhatOneServerDoesNotHaveIsAbortedAtTheOther) {
  size_t aborted = 0;
  bool ended = false;
  for (int turns = 0; !ended; ++turns) {
    for (int more = 0; more < 6; ++more) {
      {
        Task<Status> moving = move_money(paris_, rome_, 1);
        moving.start();
        for (int i = 0; i < turns && !moving.done(); ++i) let_turns_pass(1);
        rome_.end_process();
        for (int i = 0; i < more && !moving.done(); ++i) let_turns_pass(1);
        ended |= moving.done() && more == 0;
      }
      rome_.restart();
      paris_.disconnect();
      rome_.disconnect();
      paris_.connect();
      rome_.connect();
      const Settled settled = settle_all();
      EXPECT_EQ(settled.waiting, 0u) << turns << " " << more;
      aborted += settled.aborted;
      expect_whole();
      if (balance(rome_) > kStart) {
        ASSERT_TRUE(run(move_money(rome_, paris_, 1)));
      }
    }
  }
  EXPECT_GT(aborted, 0u);
}

TEST_F(JointCommit, WhatOneServerHasForgottenTheOtherOneForgetsToo) {
  ASSERT_TRUE(run(move_money(paris_, rome_, 1)));
  ASSERT_TRUE(rome_.put("other", 1));  // says that the outcome is known
  for (Bank* const bank : {&paris_, &rome_}) {
    bank->disconnect();
    bank->connect();
  }
  EXPECT_EQ(paris_.two_phase().at("committed"), 1);
  EXPECT_EQ(rome_.two_phase().at("committed"), 0);
  EXPECT_EQ(run(settle({&paris_.client()}))->remembered, 1u) << "rome may not have it";
  EXPECT_EQ(settle_all().remembered, 0u);
  EXPECT_EQ(paris_.two_phase().at("committed"), 0);
  expect_whole();
}

// A participant that has forgotten the commit, and its outcome too, has had it: that it is not
// there does not keep the other one remembering.
TEST_F(JointCommit, WhatOneServerKnowsNothingOfAnyMoreTheOtherOneForgets) {
  ASSERT_TRUE(run(move_money(paris_, rome_, 1)));
  paris_.disconnect();
  paris_.connect();
  EXPECT_EQ(paris_.two_phase().at("committed"), 1);
  const auto open = run(open_transactions({&paris_.client()}));
  ASSERT_TRUE(open && open->transactions.size() == 1u);
  const TxId at_rome = open->transactions[0].others.at(0).name;
  const auto outcome = [&] { return run(rome_.client().outcome(at_rome)); };
  for (int i = 0; i < 50'000 && outcome(); ++i) {
    for (int puts = 0; puts < 1000; ++puts) ASSERT_TRUE(rome_.put("other", puts));
    rome_.disconnect();
    rome_.restart();
    rome_.connect();
  }
  ASSERT_EQ(outcome().code(), ErrorCode::kOutcomeExpired);
  EXPECT_EQ(settle_all().remembered, 0u);
  EXPECT_EQ(paris_.two_phase().at("committed"), 0);
  expect_whole();
}

TEST_F(JointCommit, AServerThatIsAwayKeepsNothingElseWaiting) {
  {
    Task<Status> moving = move_money(paris_, rome_, 1);
    moving.start();
    while (paris_.two_phase().at("prepared") == 0) let_turns_pass(1);
    paris_.disconnect();
    rome_.disconnect();
    EXPECT_EQ(finish(moving).code(), ErrorCode::kCommitUnknown);
  }
  Bank oslo(executor_, "oslo", 13);
  for (Bank* const bank : {&paris_, &rome_, &oslo}) bank->connect();
  oslo.end_process();
  const auto settled = run(settle({&oslo.client(), &paris_.client(), &rome_.client()}));
  ASSERT_TRUE(settled);
  EXPECT_EQ(settled->committed, 1u);
  ASSERT_EQ(settled->servers.size(), 3u);
  EXPECT_FALSE(settled->servers[0]);
  EXPECT_TRUE(settled->servers[1]);
  EXPECT_FALSE(run(settle({&oslo.client()}))) << "nobody could be asked";
  expect_whole();
  oslo.disconnect();
}

TEST_F(JointCommit, WhatBeganOnAnOlderConnectionLocksNothing) {
  std::vector<Transaction> both;
  both.push_back(rome_.client().begin());
  both.push_back(paris_.client().begin());
  both[0].put(rome_.table(), "account", "1");
  ASSERT_TRUE(run(both[0].get(rome_.table(), "account")));
  ASSERT_TRUE(run(both[1].get(paris_.table(), "account")));
  both[1].put(paris_.table(), "account", "1");
  paris_.restart();
  for (int i = 0; i < 3 && !paris_.get("account"); ++i) continue;
  EXPECT_EQ(run(commit_together(std::move(both))).code(), ErrorCode::kConflict);
  EXPECT_EQ(balance(rome_), kStart);
  EXPECT_EQ(balance(paris_), kStart);
}

// One whose caller is gone stays in doubt until somebody asks for it. Nothing else waits for that.
TEST_F(JointCommit, WhatIsBehindADoubtIsForgottenToo) {
  {
    Task<Status> moving = move_money(paris_, rome_, 1);
    moving.start();
    while (paris_.two_phase().at("prepared") == 0) let_turns_pass(1);
  }
  let_turns_pass(100);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(run(move_money(rome_, paris_, 1)));
    let_turns_pass(100);
    for (Bank* const bank : {&paris_, &rome_}) {
      EXPECT_EQ(bank->two_phase().at("committed"), 0) << i;
      EXPECT_EQ(bank->two_phase().at("log_bytes"), 0) << i;
    }
  }
  expect_whole();
}

// A participant that nobody can ask keeps it waiting.
TEST_F(JointCommit, WithoutOneOfItsServersNothingIsDecided) {
  {
    Task<Status> moving = move_money(paris_, rome_, 1);
    moving.start();
    while (paris_.two_phase().at("prepared") == 0) let_turns_pass(1);
    paris_.disconnect();
    rome_.disconnect();
    EXPECT_EQ(finish(moving).code(), ErrorCode::kCommitUnknown);
  }
  paris_.connect();
  rome_.connect();
  const auto settled = run(settle({&paris_.client()}));
  ASSERT_TRUE(settled);
  EXPECT_EQ(settled->waiting, 1u);
  EXPECT_EQ(paris_.get("account").code(), ErrorCode::kConflict);
  EXPECT_EQ(settle_all().committed, 1u);
  expect_whole();
}

}  // namespace
}  // namespace pmstore
