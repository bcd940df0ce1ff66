// Commits, reads and their transactions that are destroyed in their middle: nothing stays locked,
// nothing is reserved for ever, and what became of them can be asked.
#include "fabric/local/fault_injection.h"
#include "tests/unit/pmstore/server_fixture.h"

namespace pmstore {
namespace {

// The completion of the n-th request of clients comes late: whoever waits for it is suspended
// there.
class SlowRequest final : public fabric::FaultInjector {
 public:
  explicit SlowRequest(uint64_t n) : n_(n) {}
  fabric::FaultDecision on_request(const fabric::FaultPoint& point) override {
    if (!point.connector || ++seen_ != n_) return {};
    return {fabric::Fault::kDelay, kDelayNs};
  }
  bool fired() const { return seen_ >= n_; }
  static constexpr uint64_t kDelayNs = 10'000'000;

 private:
  const uint64_t n_;
  uint64_t seen_ = 0;
};

struct Setting {
  const char* name;
  LockDiscipline discipline;
  persist::Domain domain;
};

class Abandoned : public testing::ClientFixture, public ::testing::WithParamInterface<Setting> {
 protected:
  void SetUp() override {
    domain_ = GetParam().domain;
    format_.rings = 32;
    ClientFixture::SetUp(GetParam().discipline, 77);
  }

  std::string key(const char* name) const { return std::string(name) + std::to_string(round_); }
  void prepare() {
    ++round_;
    for (const char* name : {"read", "update", "move", "erase"}) {
      ASSERT_TRUE(run(client_->put(table_, key(name), "old")));
    }
  }
  Task<Status> transaction(Transaction& tx) {
    const auto read = co_await tx.get(table_, key("read"));
    if (!read) co_return Error(read.error());
    tx.put(table_, key("update"), "new");
    tx.put(table_, key("move"), std::string(1000, 'n'));
    tx.erase(table_, key("erase"));
    tx.insert(table_, key("insert"), "new");
    co_return Status{};
  }
  // All of the transaction is there, or nothing.
  bool committed() {
    const bool is = *run(client_->get(table_, key("update"))) == "new";
    EXPECT_EQ(run(client_->get(table_, key("move")))->size(), is ? 1000u : 3u);
    EXPECT_EQ(run(client_->get(table_, key("erase"))).has_value(), !is);
    EXPECT_EQ(run(client_->get(table_, key("insert"))).has_value(), is);
    return is;
  }
  // By another client, in less than the lease, while the first one lives.
  void expect_unlocked() {
    auto other = connect();
    const uint64_t began_ns = executor_.now_ns();
    for (const char* name : {"read", "update", "move", "erase", "insert"}) {
      const auto change = [&](Transaction& tx) -> Task<Status> {
        tx.put(table_, key(name), "after");
        co_return Status{};
      };
      const Status status = run(retry(*other, change, 1000));
      EXPECT_TRUE(status) << key(name) << ": " << status.error().to_string();
    }
    EXPECT_LT(executor_.now_ns() - began_ns, 1'000'000'000u);
    run(other->close());
  }

  enum class What { kCommit, kTransaction, kBoth };
  // Destroys `what` while the n-th request of the commit is under way. False when it has fewer.
  bool abandon(uint64_t n, What what) {
    prepare();
    SlowRequest injector(n);
    TxId id;
    {
      auto tx = std::make_unique<Transaction>(client_->begin());
      EXPECT_TRUE(run(transaction(*tx)));
      const fabric::ScopedFaultInjector installed(injector);
      Task<Status> commit = tx->commit();
      commit.start();
      for (int i = 0; i < 200 && !injector.fired() && !commit.done(); ++i) executor_.run_once();
      if (!injector.fired()) {
        while (!commit.done()) executor_.run_once();
        EXPECT_TRUE(commit.take());
        return false;
      }
      id = tx->id();
      if (what != What::kCommit) tx.reset();
      if (what == What::kTransaction) {
        const Status done = finish(std::move(commit));
        EXPECT_TRUE(done) << done.error().to_string();
      }
    }
    // Until it has ended, it is running.
    Result<Outcome> outcome = run(client_->outcome(id));
    for (int i = 0; i < 100 && outcome.code() == ErrorCode::kCommitUnknown; ++i) {
      let_time_pass(1'000'000);
      outcome = run(client_->outcome(id));
    }
    EXPECT_TRUE(outcome) << outcome.error().to_string();
    EXPECT_EQ(outcome && *outcome == Outcome::kCommitted, committed());
    expect_unlocked();
    EXPECT_EQ(client_->session().reconnects, 0u);
    return true;
  }
  void abandon_everywhere(What what) {
    uint64_t n = 1;
    while (abandon(n, what) && !HasFailure()) ++n;
    EXPECT_FALSE(HasFailure()) << "at request " << n;
    EXPECT_GE(n, 2u) << "there were requests";
  }

  int round_ = 0;
};
INSTANTIATE_TEST_SUITE_P(
    Locks, Abandoned,
    ::testing::Values(Setting{"cpu", LockDiscipline::kCpu, persist::Domain::kCpuCache},
                      Setting{"rnic", LockDiscipline::kRnic, persist::Domain::kCpuCache},
                      Setting{"rnic_two_sided", LockDiscipline::kRnic,
                              persist::Domain::kMemoryController}),
    [](const auto& param) { return std::string(param.param.name); });

TEST_P(Abandoned, CommitWhoseCoroutineIsDestroyed) { abandon_everywhere(What::kCommit); }

TEST_P(Abandoned, CommitWhoseTransactionIsDestroyedStillAnswers) {
  abandon_everywhere(What::kTransaction);
}

TEST_P(Abandoned, CommitOfWhichBothAreDestroyed) { abandon_everywhere(What::kBoth); }

TEST_P(Abandoned, CommitThatGoesOnWhenTheClientIsDestroyedLeavesNothing) {
  for (uint64_t n = 1; n < 12 && !HasFailure(); ++n) {
    prepare();
    auto victim = connect();
    SlowRequest injector(n);
    {
      const fabric::ScopedFaultInjector installed(injector);
      Transaction tx = victim->begin();
      tx.put(table_, key("update"), "new");
      tx.put(table_, key("move"), std::string(1000, 'n'));
      Task<Status> commit = tx.commit();
      commit.start();
      for (int i = 0; i < 200 && !injector.fired(); ++i) executor_.run_once();
    }
    victim.reset();
    expect_unlocked();
  }
}

class AllSlow final : public fabric::FaultInjector {
 public:
  fabric::FaultDecision on_request(const fabric::FaultPoint& point) override {
    if (!point.connector || point.request.op == fabric::OpCode::kWriteImmediate) return {};
    return {fabric::Fault::kDelay, 1'000'000};
  }
};

// What one commit leaves to the background holds the session; the other commit's frame goes.
TEST_P(Abandoned, ClientThatIsDestroyedAmidTwoCommits) {
  prepare();
  const std::string one = key("update");
  const std::string other = key("read");
  for (uint64_t apart_ns = 0; apart_ns < 1'500'000; apart_ns += 250'000) {
    for (uint64_t later_ns = 0; later_ns < 1'000'000; later_ns += 200'000) {
      auto victim = connect();
      ASSERT_TRUE(run(victim->get(table_, one)));
      ASSERT_TRUE(run(victim->get(table_, other)));
      AllSlow injector;
      const fabric::ScopedFaultInjector installed(injector);
      {
        Task<Status> first = victim->put(table_, one, "2");
        first.start();
        if (apart_ns > 0) let_time_pass(apart_ns);
        Task<Status> second = victim->put(table_, other, "2");
        second.start();
        for (int i = 0; i < 200 && !first.done(); ++i) let_time_pass(100'000);
        ASSERT_TRUE(first.done());
        if (later_ns > 0) let_time_pass(later_ns);
      }
      victim.reset();
      let_time_pass(50'000'000);
    }
  }
  expect_unlocked();
}

TEST_P(Abandoned, ReadInItsMiddleLeavesItsBufferToWhatStillArrives) {
  prepare();
  const std::string name = key("read");
  for (uint64_t n = 1; n < 4; ++n) {
    SlowRequest injector(n);
    const fabric::ScopedFaultInjector installed(injector);
    for (int i = 0; i < 200; ++i) {  // more than there are buffers
      Task<Result<std::string>> read = client_->get(table_, name);
      read.start();
    }
    EXPECT_EQ(*run(client_->get(table_, name)), "old");
  }
  EXPECT_EQ(client_->session().reconnects, 0u);
}

// Its reads take several doorbells, of which only the last one is signaled.
TEST_P(Abandoned, ValidationInItsMiddleLeavesNoBufferUnusable) {
  constexpr int kReads = 80;
  for (int i = 0; i < kReads; ++i) {
    ASSERT_TRUE(run(client_->put(table_, "many" + std::to_string(i), "value")));
  }
  for (int round = 0; round < 140; ++round) {  // more than there are buffers
    Transaction tx = client_->begin();
    for (int i = 0; i < kReads; ++i) {
      ASSERT_TRUE(run(tx.get(table_, "many" + std::to_string(i))));
    }
    SlowRequest injector(kReads);
    const fabric::ScopedFaultInjector installed(injector);
    Task<Status> commit = tx.commit();
    commit.start();
    for (int i = 0; i < 10 && !commit.done(); ++i) executor_.run_once();
  }
  let_time_pass(SlowRequest::kDelayNs);
  Task<Result<std::string>> read = client_->get(table_, "many0");
  read.start();
  let_time_pass(SlowRequest::kDelayNs);
  ASSERT_TRUE(read.done()) << "it waits for a buffer";
  EXPECT_TRUE(read.take());
  EXPECT_EQ(client_->session().reconnects, 0u);
}

}  // namespace
}  // namespace pmstore
