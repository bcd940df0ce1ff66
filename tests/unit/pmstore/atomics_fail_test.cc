// Lock discipline rnic: the server's own compare-swaps fail, one after the other. What was
// acknowledged stays, no stale read validates, and the pool is sound.
#include "pmstore/check.h"
#include "tests/unit/pmstore/fail_swaps.h"
#include "tests/unit/pmstore/server_fixture.h"

namespace pmstore {
namespace {

using testing::FailSwaps;

class AtomicsFail : public testing::ClientFixture {
 protected:
  void SetUp() override {
    format_.rings = 32;
    client_options_.reconnect_timeout_ns = 10'000'000'000;
    ClientFixture::SetUp(LockDiscipline::kRnic, 77);
  }
  // The content of the pool, looked at as after the end of the server.
  void expect_sound_pool() {
    run(client_->close());
    client_.reset();
    server_.reset();
    pool_ = std::move(*persist::Pool::in_region(region_.bytes(), domain_, false));
    const auto report = check_store(*pool_);
    ASSERT_TRUE(report) << report.error().to_string();
    EXPECT_TRUE(report->sound()) << report->problems.front();
  }
  Task<Status> every_kind(Transaction& tx, std::string_view value) {
    tx.put(table_, "update", value);
    tx.put(table_, "move", std::string(1000, value[0]));
    tx.erase(table_, "erase");
    tx.insert(table_, "insert", value);
    co_return Status{};
  }
  // Sets the records, and has a transaction change them while compare-swaps fail from `first` on.
  // False when the transaction has fewer.
  bool fail_from(uint64_t first, uint64_t count, fabric::Fault fault) {
    static_cast<void>(run(client_->erase(table_, "insert")));
    for (const char* key : {"update", "move", "erase"}) {
      // Small again, so that it moves again.
      static_cast<void>(run(client_->erase(table_, key)));
      EXPECT_TRUE(run(client_->put(table_, key, "old")));
    }
    auto other = connect();
    Transaction reader = other->begin();
    EXPECT_EQ(*run(reader.get(table_, "update")), "old");
    EXPECT_EQ(*run(reader.get(table_, "move")), "old");
    EXPECT_EQ(*run(reader.get(table_, "erase")), "old");
    FailSwaps injector(first, first + count - 1, fault);
    TxId id;
    Status done;
    {
      const fabric::ScopedFaultInjector installed(injector);
      Transaction tx = client_->begin();
      EXPECT_TRUE(run(every_kind(tx, "new")));
      done = run(tx.commit());
      id = tx.id();
      let_time_pass(3'000'000'000);
    }
    bool committed = done.has_value();
    if (!done && done.code() == ErrorCode::kCommitUnknown) {
      const auto outcome = run(client_->outcome(id));
      EXPECT_TRUE(outcome) << outcome.error().to_string();
      committed = outcome && *outcome == Outcome::kCommitted;
    }
    expect_state(committed);
    reader.put(table_, "seen", "by the reader");
    const Status validated = run(reader.commit());
    EXPECT_FALSE(committed && validated) << "a transaction that read old records has committed";
    if (!committed) {
      EXPECT_TRUE(validated || validated.code() == ErrorCode::kConflict);
    }
    expect_unlocked(*other);
    run(other->close());
    return injector.fired();
  }
  void expect_state(bool committed) {
    const auto update = run(client_->get(table_, "update"));
    const auto move = run(client_->get(table_, "move"));
    ASSERT_TRUE(update) << update.error().to_string();
    ASSERT_TRUE(move) << move.error().to_string();
    EXPECT_EQ(*update, committed ? "new" : "old");
    EXPECT_EQ(move->size(), committed ? 1000u : 3u);
    EXPECT_EQ(run(client_->get(table_, "erase")).has_value(), !committed);
    EXPECT_EQ(run(client_->get(table_, "insert")).has_value(), committed);
    size_t found = 0;
    const auto page = run(client_->scan(table_, 0));
    ASSERT_TRUE(page) << page.error().to_string();
    for (const RecordRef record : page->records) {
      found += record.key != "seen" && record.key != "after" ? 1 : 0;
    }
    EXPECT_EQ(found, 3u) << "each key is there once";
  }
  void expect_unlocked(Client& by) {
    for (const char* key : {"update", "move", "erase", "insert"}) {
      const auto change = [&](Transaction& tx) -> Task<Status> {
        tx.put(table_, key, "after");
        co_return Status{};
      };
      const Status status = run(retry(by, change, 1000));
      EXPECT_TRUE(status) << key << ": " << status.error().to_string();
    }
  }
  void fail_everywhere(uint64_t count, fabric::Fault fault) {
    uint64_t first = 1;
    while (fail_from(first, count, fault) && !HasFailure()) ++first;
    EXPECT_FALSE(HasFailure()) << "from compare-swap " << first;
    EXPECT_GE(first, 6u) << "there were compare-swaps";
    expect_sound_pool();
  }
};

TEST_F(AtomicsFail, EraseWhoseUnlockFailsOnceIsStillAnErase) {
  ASSERT_TRUE(run(client_->put(table_, "alice", "1")));
  ASSERT_TRUE(run(client_->put(table_, "carol", "before")));
  auto other = connect();
  Transaction tx = other->begin();
  ASSERT_EQ(*run(tx.get(table_, "alice")), "1");
  {
    FailSwaps injector(2, 6, fabric::Fault::kBreakBefore);
    const fabric::ScopedFaultInjector installed(injector);
    ASSERT_TRUE(run(client_->erase(table_, "alice")));
    let_time_pass(3'000'000'000);
  }
  EXPECT_EQ(run(client_->get(table_, "alice")).code(), ErrorCode::kNotFound);
  ASSERT_TRUE(run(client_->put(table_, "carol", "after")));
  ASSERT_EQ(*run(tx.get(table_, "carol")), "after");
  tx.put(table_, "bob", "1");
  EXPECT_FALSE(run(tx.commit())) << "it read alice before her erase, and carol after it";
  run(other->close());
  expect_sound_pool();
}

TEST_F(AtomicsFail, MoveWhoseUnlockFailsOnceLosesNoUpdate) {
  ASSERT_TRUE(run(client_->put(table_, "alice", "1")));
  auto other = connect();
  Transaction tx = other->begin();
  ASSERT_EQ(*run(tx.get(table_, "alice")), "1");
  {
    FailSwaps injector(3, 7, fabric::Fault::kBreakBefore);
    const fabric::ScopedFaultInjector installed(injector);
    ASSERT_TRUE(run(client_->put(table_, "alice", std::string(1000, 'm'))));
    let_time_pass(3'000'000'000);
  }
  EXPECT_EQ(run(client_->get(table_, "alice"))->size(), 1000u);
  tx.put(table_, "alice", "mine");
  EXPECT_FALSE(run(tx.commit())) << "it read what the move has replaced";
  run(other->close());
  expect_sound_pool();
}

TEST_F(AtomicsFail, EveryOneOnceBeforeItsEffect) {
  fail_everywhere(1, fabric::Fault::kBreakBefore);
}
TEST_F(AtomicsFail, EveryOneOnceAfterItsEffect) { fail_everywhere(1, fabric::Fault::kBreakAfter); }
// The server gives a change up after five attempts.
TEST_F(AtomicsFail, FiveInARowBeforeTheirEffect) {
  fail_everywhere(5, fabric::Fault::kBreakBefore);
}
TEST_F(AtomicsFail, FiveInARowAfterTheirEffect) { fail_everywhere(5, fabric::Fault::kBreakAfter); }
TEST_F(AtomicsFail, TwelveInARowAfterTheirEffect) {
  fail_everywhere(12, fabric::Fault::kBreakAfter);
}

}  // namespace
}  // namespace pmstore
