// The queue pair by which a server changes its own lock words breaks: it is made again.
#include "fabric/local/fault_injection.h"
#include "tests/unit/pmstore/fail_swaps.h"
#include "tests/unit/pmstore/server_fixture.h"

namespace pmstore {
namespace {

using testing::FailSwaps;

class Loopback : public testing::ClientFixture {
 protected:
  void SetUp() override {
    format_.rings = 32;
    ClientFixture::SetUp(LockDiscipline::kRnic);
  }
};

// While a client only inserts, all compare-swaps are the server's.
TEST_F(Loopback, InsertsAndErasesGoOnWhereverItBreaks) {
  int round = 0;
  for (const fabric::Fault fault : {fabric::Fault::kBreakBefore, fabric::Fault::kBreakAfter}) {
    for (uint64_t n = 1;; ++n) {
      const std::string key = "key" + std::to_string(++round);
      FailSwaps injector(n, n, fault);
      {
        const fabric::ScopedFaultInjector installed(injector);
        Transaction tx = client_->begin();
        tx.insert(table_, key, "1");
        tx.insert(table_, key + "b", "1");
        const Status done = run(tx.commit());
        ASSERT_TRUE(done) << "swap " << n << ": " << done.error().to_string();
      }
      EXPECT_EQ(*run(client_->get(table_, key)), "1");
      EXPECT_TRUE(run(client_->put(table_, key, "2")));
      EXPECT_TRUE(run(client_->erase(table_, key)));
      if (!injector.fired()) break;
      ASSERT_LT(n, 20u);
    }
  }
  EXPECT_EQ(client_->session().reconnects, 0u);
}

// Every try of one swap fails: that insert fails, and nothing else.
TEST_F(Loopback, ThatCannotBeMadeAgainCostsOneInsertNotTheServer) {
  FailSwaps injector(1, 5, fabric::Fault::kBreakBefore);
  {
    const fabric::ScopedFaultInjector installed(injector);
    Transaction tx = client_->begin();
    tx.insert(table_, "alice", "1");
    const Status done = run(tx.commit());
    ASSERT_FALSE(done);
    EXPECT_NE(done.code(), ErrorCode::kCommitUnknown);
  }
  EXPECT_TRUE(run(client_->insert(table_, "alice", "2")));
  EXPECT_EQ(*run(client_->get(table_, "alice")), "2");
}

// A client vanishes, and its locks cannot be taken back at once: they are a moment later.
TEST_F(Loopback, WhatCouldNotBeResolvedIsTriedAgain) {
  auto victim = connect();
  ASSERT_TRUE(run(client_->put(table_, "alice", "1")));
  class DropAfterLock final : public fabric::FaultInjector {
   public:
    fabric::FaultDecision on_request(const fabric::FaultPoint& point) override {
      if (point.request.op != fabric::OpCode::kCompareSwap) return {};
      ++seen_;
      // The victim's lock, which it has; then the first tries to take it back, in two rounds.
      if (seen_ == 1) return {fabric::Fault::kBreakAfter, 0};
      return {seen_ <= 7 ? fabric::Fault::kBreakBefore : fabric::Fault::kNone, 0};
    }

   private:
    int seen_ = 0;
  } injector;
  const fabric::ScopedFaultInjector installed(injector);
  EXPECT_FALSE(run(victim->put(table_, "alice", "2")));
  victim.reset();
  let_time_pass(3'000'000'000);
  const Status done = run(client_->put(table_, "alice", "3"));
  EXPECT_TRUE(done) << done.error().to_string();
}

}  // namespace
}  // namespace pmstore
