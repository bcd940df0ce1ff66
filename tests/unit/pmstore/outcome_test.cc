// How long a client can learn what became of its transactions, whatever has happened since.
#include <unistd.h>

#include <filesystem>

#include "fabric/local/fault_injection.h"
#include "pmstore/layout/protocol.h"
#include "tests/unit/pmstore/server_fixture.h"

namespace pmstore {
namespace {

constexpr uint64_t kId = 77;

// Under both lock disciplines.
class Outcomes : public testing::ClientFixture,
                 public ::testing::WithParamInterface<LockDiscipline> {
 protected:
  void SetUp() override {
    ClientFixture::SetUp(GetParam(), kId);
    ASSERT_NE(client_, nullptr);
    ASSERT_TRUE(run(client_->put(table_, "doubt", "old")));
  }

  // A transaction that loses its connection at such a request that it ends in doubt: the request
  // has taken effect, or not.
  TxId doubt(bool took_effect) {
    const fabric::Fault fault =
        took_effect ? fabric::Fault::kBreakAfter : fabric::Fault::kBreakBefore;
    for (uint64_t n = 1; n < 20; ++n) {
      fabric::FailNthRequest injector(n, fabric::FaultSide::kConnector, {fault, 0});
      Transaction tx = client_->begin();
      Status status;
      {
        const fabric::ScopedFaultInjector installed(injector);
        tx.put(table_, "doubt", "new");
        status = run(tx.commit());
      }
      if (!status && status.code() == ErrorCode::kCommitUnknown) return tx.id();
    }
    ADD_FAILURE() << "no request puts the commit in doubt";
    return {};
  }
  // Many times around the ring, or the shard log.
  void work_much(Client& client) {
    for (int i = 0; i < 12'000; ++i) {
      const Status done = run(client.put(table_, "other" + std::to_string(i % 7), "value"));
      ASSERT_TRUE(done) << done.error().to_string();
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Locks, Outcomes,
                         ::testing::Values(LockDiscipline::kCpu, LockDiscipline::kRnic),
                         [](const auto& param) {
                           return std::string(discipline_name(param.param));
                         });

TEST_P(Outcomes, WhatThisSessionHasCommittedIsCommitted) {
  std::vector<TxId> committed;
  for (int i = 0; i < 20; ++i) {
    Transaction tx = client_->begin();
    tx.put(table_, "doubt", std::to_string(i));
    ASSERT_TRUE(run(tx.commit()));
    committed.push_back(tx.id());
  }
  for (const TxId id : committed) EXPECT_EQ(run(client_->outcome(id)), Outcome::kCommitted);
}

TEST_P(Outcomes, ClientThatWorksOnMayStillAskAboutTheSessionBefore) {
  const TxId lost = doubt(false);
  work_much(*client_);
  EXPECT_EQ(run(client_->outcome(lost)), Outcome::kAborted);
  const TxId done = doubt(true);
  work_much(*client_);
  EXPECT_EQ(run(client_->outcome(done)), Outcome::kCommitted);
  EXPECT_EQ(run(client_->outcome(lost)), Outcome::kAborted) << "two sessions before";
}

TEST_P(Outcomes, ClientThatWorksOnMayStillAskAfterTheServersRestart) {
  const TxId lost = doubt(false);
  client_.reset();
  restart();
  client_ = connect(kId);
  work_much(*client_);
  EXPECT_EQ(run(client_->outcome(lost)), Outcome::kAborted);
}

TEST_P(Outcomes, AnotherClientMayAskAboutAnEarlierSessionOfOneThatWorks) {
  const TxId done = doubt(true);
  ASSERT_TRUE(run(client_->put(table_, "x", "1")));  // connected again
  auto other = connect();
  EXPECT_EQ(run(other->outcome(done)), Outcome::kCommitted);
  const TxId lost{numbered::id_of(kId), done.sequence + 1};
  EXPECT_EQ(run(other->outcome(lost)), Outcome::kAborted) << "that session is fenced";
  run(other->close());
}

TEST_P(Outcomes, ANumberThatNobodyHasBeenGivenMayStillCommit) {
  const TxId lost = doubt(false);
  run(client_->close());
  client_.reset();
  auto other = connect();  // the youngest session
  const uint64_t session = uint64_t{1} << 32;
  EXPECT_EQ(run(other->outcome({numbered::id_of(kId), lost.sequence + 100})), Outcome::kAborted);
  TxId later = lost;
  for (int i = 0; i < 3; ++i) later.sequence += session;
  EXPECT_EQ(run(other->outcome(later)).code(), ErrorCode::kInvalidArgument);
  // Its client comes back, and soon gets there.
  client_ = connect(kId);
  Transaction tx = client_->begin();
  tx.put(table_, "doubt", "1");
  ASSERT_TRUE(run(tx.commit()));
  EXPECT_LT(tx.id().sequence, later.sequence + 2 * session);
  run(other->close());
}

// The shard log, of lock discipline cpu, keeps them until others need their room.
TEST_P(Outcomes, AreNotKeptForEver) {
  const TxId lost = doubt(false);
  work_much(*client_);
  let_time_pass(uint64_t{server_options_.outcome_retention_ms} * 1'000'000 - 1'000'000);
  EXPECT_EQ(run(client_->outcome(lost)), Outcome::kAborted);
  let_time_pass(10'000'000);
  if (GetParam() == LockDiscipline::kCpu) {
    EXPECT_EQ(run(client_->outcome(lost)), Outcome::kAborted);
  } else {
    EXPECT_EQ(run(client_->outcome(lost)).code(), ErrorCode::kOutcomeExpired);
  }
}

TEST_P(Outcomes, OfVanishedClientsAreKeptWhenNewClientsGetTheirPlaces) {
  const TxId lost = doubt(true);
  client_.reset();
  let_time_pass(1'000'000);
  std::vector<std::unique_ptr<Client>> others;
  for (uint32_t i = 0; i < format_.rings; ++i) others.push_back(connect(1000 + i));
  EXPECT_EQ(run(others.back()->outcome(lost)), Outcome::kCommitted);
}

TEST_P(Outcomes, AreKeptFromTheDepartureOnHoweverLongTheServerHasRun) {
  let_time_pass(uint64_t{server_options_.outcome_retention_ms} * 2'000'000);
  const TxId done = doubt(true);
  client_.reset();
  let_time_pass(1'000'000);
  std::vector<std::unique_ptr<Client>> others;
  for (uint32_t i = 0; i < format_.rings; ++i) others.push_back(connect(1000 + i));
  EXPECT_EQ(run(others.back()->outcome(done)), Outcome::kCommitted);
}

// What it knows is not kept over truncation and a restart, also when it writes no more.
TEST_P(Outcomes, OfAClientThatOnlyReadsAreForgotten) {
  if (GetParam() == LockDiscipline::kRnic) return;  // the ring keeps what it has room for
  const auto silent = connect(kId + 1);
  const auto reader = connect(kId + 2);
  const auto last_of = [&](Client& client) {
    Transaction tx = client.begin();
    tx.put(table_, "last", "value");
    EXPECT_TRUE(run(tx.commit()));
    return tx.id();
  };
  const TxId of_silent = last_of(*silent);
  const TxId of_reader = last_of(*reader);
  ASSERT_TRUE(run(reader->server_stat()));
  work_much(*client_);
  restart();
  const auto asker = connect(kId + 3);
  EXPECT_EQ(run(asker->outcome(of_silent)), Outcome::kCommitted) << "nobody said that it is known";
  EXPECT_EQ(run(asker->outcome(of_reader)).code(), ErrorCode::kOutcomeExpired);
}

TEST_P(Outcomes, OfAClientThatHasGoneAreForgottenAsFarAsItKnewThem) {
  if (GetParam() == LockDiscipline::kRnic) return;
  auto leaving = connect(kId + 1);
  const TxId last = [&] {
    Transaction tx = leaving->begin();
    tx.put(table_, "last", "value");
    EXPECT_TRUE(run(tx.commit()));
    return tx.id();
  }();
  run(leaving->close());
  leaving.reset();
  let_time_pass(1'000'000);
  work_much(*client_);
  restart();
  const auto asker = connect(kId + 3);
  EXPECT_EQ(run(asker->outcome(last)).code(), ErrorCode::kOutcomeExpired);
}

// Many at the same time: more than a few last ones have to be kept.
TEST_P(Outcomes, InDoubtAreKeptOverTruncationAndARestart) {
  if (GetParam() == LockDiscipline::kRnic) return;  // the ring's are in DRAM
  constexpr int kMany = 60;
  std::vector<Transaction> transactions;
  std::vector<Task<Status>> commits;
  fabric::FailNthRequest injector(10, fabric::FaultSide::kListener,
                                  {fabric::Fault::kBreakBefore, 0});
  {
    const fabric::ScopedFaultInjector installed(injector);
    for (int i = 0; i < kMany; ++i) {
      transactions.push_back(client_->begin());
      transactions.back().put(table_, "many" + std::to_string(i), "new");
      commits.push_back(transactions.back().commit());
      commits.back().start();
    }
    let_time_pass(100'000'000);
  }
  std::vector<int> in_doubt;
  for (int i = 0; i < kMany; ++i) {
    ASSERT_TRUE(commits[i].done());
    const Status done = commits[i].take();
    if (!done && done.code() == ErrorCode::kCommitUnknown) in_doubt.push_back(i);
  }
  EXPECT_GT(in_doubt.size(), 30u);
  work_much(*client_);
  restart();
  let_time_pass(1'000'000);  // the client sees it
  for (const int i : in_doubt) {
    const auto outcome = run(client_->outcome(transactions[i].id()));
    ASSERT_TRUE(outcome) << outcome.error().to_string();
    const auto there = run(client_->get(table_, "many" + std::to_string(i)));
    EXPECT_EQ(*outcome, there ? Outcome::kCommitted : Outcome::kAborted) << i;
  }
}

// A session has 2^32 - 1 numbers for transactions. Asking about one skips it and those before.
class UsedUpNumbers : public Outcomes {
 protected:
  // The next number is the last one but `left`.
  void skip_to_the_last(uint64_t left = 0) {
    Transaction tx = client_->begin();
    tx.put(table_, "doubt", "first");
    ASSERT_TRUE(run(tx.commit()));
    last_ = (tx.id().sequence >> 32 << 32) + kSessionSequences - 1;
    ASSERT_EQ(run(client_->outcome({numbered::id_of(kId), last_ - left - 1})), Outcome::kAborted);
  }
  uint64_t last_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Locks, UsedUpNumbers,
                         ::testing::Values(LockDiscipline::kCpu, LockDiscipline::kRnic),
                         [](const auto& param) {
                           return std::string(discipline_name(param.param));
                         });

TEST_P(UsedUpNumbers, NextTransactionGetsANewSession) {
  skip_to_the_last();
  EXPECT_EQ(run(client_->outcome({numbered::id_of(kId), last_ + 1})).code(),
            ErrorCode::kInvalidArgument);
  Transaction late = client_->begin();
  ASSERT_EQ(*run(late.get(table_, "doubt")), "first");
  late.put(table_, "doubt", "late");

  Transaction last = client_->begin();
  last.put(table_, "last", "1");
  ASSERT_TRUE(run(last.commit()));
  EXPECT_EQ(last.id().sequence, last_);
  EXPECT_EQ(run(late.commit()).code(), ErrorCode::kConflict) << "it began on the old session";
  EXPECT_EQ(client_->session().reconnects, 0u);

  Transaction next = client_->begin();
  next.put(table_, "next", "1");
  ASSERT_TRUE(run(next.commit()));
  EXPECT_GT(next.id().sequence, last_ + 1);
  EXPECT_EQ(client_->session().reconnects, 1u);
  EXPECT_EQ(run(client_->outcome(last.id())), Outcome::kCommitted);
  EXPECT_EQ(run(client_->outcome({numbered::id_of(kId), last_ - 1})), Outcome::kAborted);
  EXPECT_EQ(run(client_->outcome(next.id())), Outcome::kCommitted);
}

TEST_P(UsedUpNumbers, CommitUnderWayIsNotPutInDoubt) {
  for (uint64_t n = 1; n < 6 && !HasFailure(); ++n) {
    skip_to_the_last();
    const uint64_t before = client_->session().reconnects;
    fabric::FailNthRequest injector(n, fabric::FaultSide::kConnector,
                                    {fabric::Fault::kDelay, 10'000'000});
    const fabric::ScopedFaultInjector installed(injector);
    Task<Status> last = client_->put(table_, "last", "1");
    last.start();
    const Status next = run(client_->put(table_, "next", "1"));
    EXPECT_TRUE(next) << n << ": " << next.error().to_string();
    const Status done = last.done() ? last.take() : run(std::move(last));
    EXPECT_TRUE(done) << n << ": " << done.error().to_string();
    EXPECT_EQ(client_->session().reconnects, before + 1);
  }
}

// ---- in process ----

class EmbeddedPool : public ::testing::TestWithParam<LockDiscipline> {
 protected:
  void SetUp() override {
    std::filesystem::remove(path_);
    persist::PoolOpenOptions options;
    auto pool = persist::Pool::create(path_, 16 << 20, options);
    ASSERT_TRUE(pool) << pool.error().to_string();
    ASSERT_TRUE(format_store(**pool, {kRings, 64 << 10}));
  }
  void TearDown() override { std::filesystem::remove(path_); }
  std::unique_ptr<Client> open() {
    ClientOptions options;
    options.local_discipline = GetParam();
    options.assume_domain = persist::Domain::kCpuCache;
    auto client =
        executor_.run(Client::connect(executor_, {fabric::Scheme::kLocal, path_, 0}, options));
    if (client) return std::move(*client);
    ADD_FAILURE() << client.error().to_string();
    return nullptr;
  }

  static constexpr uint32_t kRings = 3;
  const std::string path_ = "/dev/shm/pmstore-embedded-" + std::to_string(getpid());
  base::VirtualClock clock_;
  Executor executor_{clock_};
};
INSTANTIATE_TEST_SUITE_P(Locks, EmbeddedPool,
                         ::testing::Values(LockDiscipline::kCpu, LockDiscipline::kRnic),
                         [](const auto& param) {
                           return std::string(discipline_name(param.param));
                         });

TEST_P(EmbeddedPool, AnyNumberOfUsersMayDieInIt) {
  std::vector<TxId> committed;
  for (uint32_t user = 0; user < 4 * kRings; ++user) {
    auto client = open();
    ASSERT_NE(client, nullptr) << "user " << user;
    const TableId table = *executor_.run(client->open_table("t", true));
    // The rings of the youngest dead hold what they did; another kRings - 1 are used by now.
    for (size_t back = 1; back < std::min<size_t>(kRings, committed.size()); ++back) {
      EXPECT_EQ(executor_.run(client->outcome(committed[committed.size() - back])),
                Outcome::kCommitted);
    }
    Transaction tx = client->begin();
    tx.put(table, "user", std::to_string(user));
    ASSERT_TRUE(executor_.run(tx.commit()));
    committed.push_back(tx.id());
    // Destroyed without close(): nothing is said to the server, as when the process is killed.
  }
  auto last = open();
  const TableId table = *executor_.run(last->open_table("t"));
  EXPECT_EQ(*executor_.run(last->get(table, "user")), std::to_string(4 * kRings - 1));
  executor_.run(last->close());
}

}  // namespace
}  // namespace pmstore
