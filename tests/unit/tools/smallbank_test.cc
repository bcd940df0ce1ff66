#include "tools/bench/smallbank.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <map>

#include "fabric/local/fault_injection.h"
#include "persist/pool.h"
#include "pmstore/server.h"
#include "tools/bench/smallbank_bank.h"
#include "tools/bench/smallbank_worker.h"

namespace pmstore::tools::smallbank {
namespace {

// A bank of ten accounts in a pool of this process.
class Smallbank : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "smallbank-" + std::to_string(getpid());
    unlink(path_.c_str());
    {
      auto pool = persist::Pool::create(path_, 32u << 20, {});
      ASSERT_TRUE(pool) << pool.error().message;
      ASSERT_TRUE(format_store(**pool, {}));
    }
    client_ = connect(path_);
    ASSERT_NE(client_, nullptr);
    tables_ = *executor_.run(open_tables(*client_, true));
    std::atomic<uint64_t> loaded;
    ASSERT_TRUE(executor_.run(load_bank(*client_, tables_, kAccounts, loaded)));
  }
  void TearDown() override {
    if (client_) executor_.run(client_->close());
    client_.reset();
    unlink(path_.c_str());
  }

  // Opens the pool, or is a client of the server at `name`.
  std::unique_ptr<Client> connect(const std::string& name) {
    ClientOptions options;
    options.assume_domain = persist::Domain::kCpuCache;
    options.call_timeout_ns = options.connect_timeout_ns = kLongNs;
    auto client = executor_.run(
        Client::connect(executor_, {fabric::Scheme::kLocal, name, 0}, std::move(options)));
    EXPECT_TRUE(client) << client.error().message;
    return client ? std::move(*client) : nullptr;
  }
  // Executes and commits.
  Effect act(Order order) {
    Transaction transaction = client_->begin();
    auto effect = executor_.run(execute(transaction, tables_, order));
    EXPECT_TRUE(effect);
    if (!effect->rolled_back) {
      const Status committed = executor_.run(transaction.commit());
      EXPECT_TRUE(committed);
    }
    return *effect;
  }
  int64_t cents(TableId table, uint64_t account) {
    const std::string key = account_key(account);
    return decode_balance(*executor_.run(client_->get(table, key)))->cents;
  }
  int64_t savings(uint64_t account) { return cents(tables_.savings, account); }
  int64_t checking(uint64_t account) { return cents(tables_.checking, account); }
  Audit audit() { return *executor_.run(audit_bank(*client_, tables_, kAccounts)); }
  void put(TableId table, const std::string& key, const std::string& value) {
    ASSERT_TRUE(executor_.run(client_->put(table, key, value)));
  }

  static constexpr uint64_t kAccounts = 10;
  // Whoever waits for such a time-out is seen, however busy the machine is.
  static constexpr uint64_t kLongNs = 300'000'000'000;
  base::RealClock clock_;
  Executor executor_{clock_};
  std::string path_;
  std::unique_ptr<Client> client_;
  Tables tables_;
};

TEST_F(Smallbank, AmalgamateMovesAllMoneyOfOneCustomerToAnother) {
  const Effect effect = act({Kind::kAmalgamate, 1, 2, 0});
  EXPECT_EQ(effect.net_cents, 0);
  EXPECT_EQ(effect.writes, 3u);
  EXPECT_EQ(savings(1) + checking(1), 0);
  EXPECT_EQ(checking(2), 3 * kInitialCents);
}

TEST_F(Smallbank, SendPaymentRollsBackWhenThePayerHasTooLittle) {
  EXPECT_TRUE(act({Kind::kSendPayment, 1, 2, kInitialCents + 1}).rolled_back);
  EXPECT_EQ(checking(2), kInitialCents);
  EXPECT_FALSE(act({Kind::kSendPayment, 1, 2, kInitialCents}).rolled_back);
  EXPECT_EQ(checking(1), 0);
  EXPECT_EQ(checking(2), 2 * kInitialCents);
}

TEST_F(Smallbank, TransactSavingsNeverGoesBelowZero) {
  EXPECT_TRUE(act({Kind::kTransactSavings, 1, 0, -kInitialCents - 1}).rolled_back);
  EXPECT_EQ(act({Kind::kTransactSavings, 1, 0, -kInitialCents}).net_cents, -kInitialCents);
  EXPECT_EQ(savings(1), 0);
}

TEST_F(Smallbank, AnOverdraftCostsAPenalty) {
  EXPECT_EQ(act({Kind::kWriteCheck, 1, 0, 2 * kInitialCents}).net_cents, -2 * kInitialCents);
  EXPECT_EQ(act({Kind::kWriteCheck, 1, 0, 1}).net_cents, -1 - kOverdraftPenaltyCents);
  EXPECT_EQ(checking(1), -kInitialCents - 1 - kOverdraftPenaltyCents);
}

TEST_F(Smallbank, BalanceWritesNothing) {
  EXPECT_EQ(act({Kind::kBalance, 3, 0, 0}).writes, 0u);
  EXPECT_EQ(act({Kind::kDepositChecking, 3, 0, 5}).net_cents, 5);
}

TEST_F(Smallbank, AMissingAccountIsAnError) {
  const std::string key = account_key(4);
  ASSERT_TRUE(executor_.run(client_->erase(tables_.checking, key)));
  Transaction transaction = client_->begin();
  const Order order{Kind::kDepositChecking, 4, 0, 5};
  const auto effect = executor_.run(execute(transaction, tables_, order));
  ASSERT_FALSE(effect);
  EXPECT_EQ(effect.code(), ErrorCode::kBadPool);
}

TEST_F(Smallbank, AWorkersRunPassesTheAudit) {
  WorkerPlan plan;
  plan.tables = tables_;
  plan.run = 7;
  plan.accounts = kAccounts;
  plan.seed = 1;
  plan.ops = 500;
  Tally tally;
  BenchControl control;
  Worker worker(*client_, plan, tally);
  ASSERT_TRUE(executor_.run(worker.run(control)));
  Audit found = audit();
  found.compare(ledger_key(7, 0, 0), worker.expected());
  EXPECT_TRUE(found.ok()) << found.why_not();
  EXPECT_GT(found.ledger_transactions, 100u);
  EXPECT_EQ(found.workers_compared, 1u);
}

// From the n-th request on there is no server that answers.
class AwayFrom final : public fabric::FaultInjector {
 public:
  explicit AwayFrom(uint64_t n) : n_(n) {}
  fabric::FaultDecision on_request(const fabric::FaultPoint& point) override {
    if (!point.connector || ++seen_ < n_) return {};
    return {fabric::Fault::kBreakBefore, 0};
  }

 private:
  uint64_t n_;
  uint64_t seen_ = 0;
};

TEST_F(Smallbank, AServerThatIsAwayEndsTheRunAtOnceAndTheTransactionInDoubtIsNamed) {
  WorkerPlan plan;
  plan.tables = tables_;
  plan.accounts = kAccounts;
  plan.ops = 100;
  plan.call_timeout_ns = kLongNs;
  // What the client asks for is lost on the way; a client that opens the pool itself asks nobody.
  executor_.run(client_->close());
  client_.reset();
  persist::PoolOpenOptions how;
  how.assume_domain = persist::Domain::kCpuCache;
  const auto pool = open_pool(path_, how);
  ASSERT_TRUE(pool) << pool.error().message;
  ServerOptions with;
  with.discipline = LockDiscipline::kCpu;
  const auto server = executor_.run(Server::start(executor_, **pool, with));
  ASSERT_TRUE(server) << server.error().message;
  ASSERT_TRUE(executor_.run((*server)->listen({fabric::Scheme::kLocal, "smallbank", 0})));
  client_ = connect("smallbank");
  ASSERT_NE(client_, nullptr);
  int in_doubt = 0;
  for (uint64_t n = 1; n <= 12; ++n) {
    plan.run = n;
    Tally tally;
    BenchControl control;
    Worker worker(*client_, plan, tally);
    AwayFrom injector(n);
    const uint64_t start_ns = clock_.now_ns();
    Status ended;
    {
      const fabric::ScopedFaultInjector installed(injector);
      ended = executor_.run(worker.run(control));
    }
    EXPECT_LT(clock_.now_ns() - start_ns, kLongNs / 3);
    ASSERT_FALSE(ended);
    EXPECT_EQ(tally.mismatches, 0u) << tally.first_mismatch;
    EXPECT_NE(ended.error().message.find("--ride-through SECONDS"), std::string::npos)
        << ended.error().message;
    if (ended.code() != ErrorCode::kCommitUnknown) continue;
    ++in_doubt;
    const size_t at = ended.error().message.find("pmstore kv outcome ");
    ASSERT_NE(at, std::string::npos) << ended.error().message;
    const std::string behind = ended.error().message.substr(at + 19);
    EXPECT_TRUE(parse_tx_id(behind.substr(0, behind.find_first_not_of("0123456789abcdef-"))))
        << ended.error().message;
  }
  EXPECT_GT(in_doubt, 0);
  executor_.run(client_->close());
  client_.reset();
  EXPECT_TRUE(executor_.run((*server)->stop()));
}

// Each canary takes the audit one thing that it must not overlook.
TEST_F(Smallbank, TheAuditSeesACentTooMany) {
  put(tables_.savings, account_key(1), encode(Balance{kInitialCents + 1, 0}));
  EXPECT_FALSE(audit().ok());
}

TEST_F(Smallbank, TheAuditSeesALostTransfer) {
  // No money is missing, but a write that the ledger knows.
  put(tables_.ledger, ledger_key(7, 0, 0), encode(LedgerEntry{1, 0, 2}));
  EXPECT_FALSE(audit().ok());
}

TEST_F(Smallbank, TheAuditSeesAMissingAccount) {
  const std::string key = account_key(4);
  ASSERT_TRUE(executor_.run(client_->erase(tables_.checking, key)));
  EXPECT_FALSE(audit().ok());
}

TEST_F(Smallbank, TheAuditSeesADamagedRecord) {
  put(tables_.checking, account_key(4), "+100");
  EXPECT_FALSE(audit().ok());
}

TEST_F(Smallbank, TheAuditSeesAnAcknowledgedTransactionThatIsNotThere) {
  Audit found = audit();
  found.compare(ledger_key(7, 0, 0), LedgerEntry{1, 0, 2});
  EXPECT_FALSE(found.ok());
}

TEST_F(Smallbank, AJournalAllowsTheTransactionInFlightAndNothingElse) {
  const std::string path = path_ + ".journal";
  auto journal = Journal::create(path, 7, 1, 1);
  ASSERT_TRUE(journal);
  (*journal)->note_acknowledged(0, 0, LedgerEntry{3, 10, 6});
  (*journal)->note_attempted(0, 0, LedgerEntry{4, 15, 7});
  auto again = Journal::open(path);
  ASSERT_TRUE(again);
  unlink(path.c_str());
  const std::pair<LedgerEntry, bool> cases[] = {{{3, 10, 6}, true},
                                                {{4, 15, 7}, true},
                                                {{2, 10, 4}, false},
                                                {{4, 16, 7}, false},
                                                {{0, 0, 0}, false}};
  for (const auto& [stored, good] : cases) {
    Audit audit;
    audit.ledger[ledger_key(7, 0, 0)] = stored;
    compare_journal(audit, **again);
    EXPECT_EQ(audit.workers_different == 0, good) << encode(stored);
  }
}

TEST(OrderSource, FourPercentOfTheAccountsTakeNinetyPercentOfTheAccesses) {
  constexpr uint64_t kAll = 1000;
  OrderSource source(5, kAll);
  std::map<Kind, unsigned> kinds;
  unsigned hot = 0;
  constexpr unsigned kOrders = 20'000;
  for (unsigned i = 0; i < kOrders; ++i) {
    const Order order = source.next();
    ++kinds[order.kind];
    ASSERT_LT(order.first, kAll);
    ASSERT_NE(order.first, order.second);
    hot += order.first < 40 ? 1 : 0;
  }
  EXPECT_NEAR(hot, kOrders * 0.90, kOrders * 0.02);
  EXPECT_NEAR(kinds[Kind::kSendPayment], kOrders * 0.25, kOrders * 0.02);
  EXPECT_NEAR(kinds[Kind::kBalance], kOrders * 0.15, kOrders * 0.02);
}

TEST(SmallbankRecords, TextIsReadBackAndNonsenseIsNot) {
  const Balance balance{-12345, 678};
  EXPECT_EQ(decode_balance(encode(balance)), balance);
  const LedgerEntry entry{1, -2, 3};
  EXPECT_EQ(decode_ledger(encode(entry)), entry);
  for (const char* text : {"", "+1", "+1 x", "+1 2 3", "one 2"}) {
    EXPECT_FALSE(decode_balance(text)) << text;
  }
}

}  // namespace
}  // namespace pmstore::tools::smallbank
