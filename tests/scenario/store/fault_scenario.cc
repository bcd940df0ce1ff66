// The client loses its connection at every work request of the protocol, before and after it took
// effect: whatever it was told is true, and nothing stays locked.
#include <atomic>

#include "fabric/local/fault_injection.h"
#include "tests/scenario/store/store_scenario.h"

namespace pmstore::scenario {
namespace {

using fabric::Fault;

// Breaks the connection at the n-th request that the chosen thread posts.
class FailNth final : public fabric::FaultInjector {
 public:
  FailNth(uint64_t n, const Executor& clients, bool of_clients, Fault fault)
      : n_(n), clients_(clients), of_clients_(of_clients), fault_(fault) {}
  fabric::FaultDecision on_request(const fabric::FaultPoint& point) override {
    // The server's own loopback connection is not what is tried here.
    const bool by_client = point.executor == &clients_;
    if (by_client != of_clients_ || by_client != point.connector) return {};
    return {++seen_ == n_ ? fault_ : Fault::kNone, 0};
  }
  bool fired() const { return seen_ >= n_; }

 private:
  const uint64_t n_;
  const Executor& clients_;
  const bool of_clients_;
  const Fault fault_;
  std::atomic<uint64_t> seen_{0};
};

class ClientFault : public StoreScenario {
 protected:
  void SetUp() override {
    if (scheme() != fabric::Scheme::kLocal || same_thread()) {
      GTEST_SKIP() << "faults are injected by requests of the client's thread";
    }
    StoreScenario::SetUp();
  }

  // The state before, of round `n`; every key of a round is used in no other.
  std::string key(const char* name) const { return std::string(name) + std::to_string(round_); }
  void prepare() {
    ++round_;
    for (const char* name : {"read", "update", "other", "move", "erase"}) {
      const Status status = put(*client_, key(name), "old");
      ASSERT_TRUE(status) << status.error().to_string();
    }
  }
  Task<Status> transaction(Transaction& tx) {
    for (const char* name : {"read", "update", "absent"}) {
      const auto value = co_await tx.get(table_, key(name));
      if (!value && value.code() != ErrorCode::kNotFound) co_return Error(value.error());
    }
    tx.put(table_, key("update"), "new");
    tx.put(table_, key("other"), "new");
    if (in_place_only_) co_return Status{};
    tx.put(table_, key("move"), std::string(1000, 'n'));
    tx.erase(table_, key("erase"));
    tx.insert(table_, key("insert"), "new");
    co_return Status{};
  }

  // What another client sees: all of it, or nothing.
  void expect_state(bool committed) {
    const auto expect = [&](const char* name, std::string_view value) {
      const auto got = get(*client_, key(name));
      if (value.empty()) {
        EXPECT_EQ(got ? *got : std::string(error_name(got.code())), "NotFound") << key(name);
      } else {
        EXPECT_EQ(got ? *got : std::string(error_name(got.code())), value) << key(name);
      }
    };
    expect("read", "old");
    expect("update", committed ? "new" : "old");
    expect("other", committed ? "new" : "old");
    committed = committed && !in_place_only_;
    expect("move", committed ? std::string(1000, 'n') : "old");
    expect("erase", committed ? "" : "old");
    expect("insert", committed ? "new" : "");
    expect("absent", "");
  }

  // Everything can be changed: nothing stays locked or reserved.
  void expect_unlocked() {
    for (const char* name : {"read", "update", "other", "move", "erase", "insert", "absent"}) {
      const auto change = [&](Transaction& tx) -> Task<Status> {
        tx.put(table_, key(name), "after");
        co_return Status{};
      };
      const Status status = run(retry(*client_, change, 200));
      EXPECT_TRUE(status) << key(name) << ": " << status.error().to_string();
      EXPECT_EQ(*get(*client_, key(name)), "after");
    }
  }

  // True when the fault point was reached.
  bool try_fault(uint64_t n, bool of_clients, Fault fault) {
    prepare();
    auto victim = connect();
    if (victim == nullptr) return false;
    FailNth injector(n, executor_, of_clients, fault);
    Status status;
    TxId id;
    {
      const fabric::ScopedFaultInjector installed(injector);
      Transaction tx = victim->begin();
      status = run(transaction(tx));
      if (status) status = run(tx.commit());
      id = tx.id();
    }
    bool committed = static_cast<bool>(status);
    if (!status && status.code() == ErrorCode::kCommitUnknown) {
      ++unknown_;
      const auto outcome = run(victim->outcome(id));
      EXPECT_TRUE(outcome) << outcome.error().to_string();
      committed = outcome && *outcome == Outcome::kCommitted;
    } else if (!status) {
      EXPECT_TRUE(status.code() == ErrorCode::kDisconnected ||
                  status.code() == ErrorCode::kConflict)
          << status.error().to_string();
    }
    (committed ? committed_ : aborted_) += 1;
    expect_state(committed);
    expect_unlocked();
    // The victim goes on as well.
    EXPECT_EQ(*run(victim->get(table_, key("update"))), "after");
    run(victim->close());
    return injector.fired();
  }

  void try_every_fault(bool of_clients) {
    for (const Fault fault : {Fault::kBreakBefore, Fault::kBreakAfter}) {
      uint64_t n = 1;
      while (try_fault(n, of_clients, fault) && !HasFailure()) ++n;
      if (HasFailure()) {
        ADD_FAILURE() << "at request " << n << (of_clients ? " of the client" : " of the server")
                      << (fault == Fault::kBreakBefore ? ", before it" : ", after it");
        return;
      }
      EXPECT_GE(n, 2u) << "there were requests to fail";
    }
    EXPECT_GT(committed_, 0) << "faults after the commit point";
    if (of_clients || rnic()) {
      EXPECT_GT(aborted_, 0) << "faults before the commit point";
    }
    // One-sided, the commit point is a request of the client, and no reply.
    const bool replies_decide =
        client_->session().log_strategy == persist::WriteStrategy::kTwoSided;
    if (of_clients || replies_decide) {
      EXPECT_GT(unknown_, 0) << "faults at it";
    }
  }

  int round_ = 0;
  int committed_ = 0;
  int aborted_ = 0;
  int unknown_ = 0;
  bool in_place_only_ = false;
};
PMSTORE_STORE_SCENARIOS(ClientFault);

TEST_P(ClientFault, AtEveryRequestOfTheClient) { try_every_fault(true); }

TEST_P(ClientFault, AtEveryRequestOfTheClientThatOnlyUpdates) {
  in_place_only_ = true;
  try_every_fault(true);
}

TEST_P(ClientFault, AtEveryReplyOfTheServer) { try_every_fault(false); }

}  // namespace
}  // namespace pmstore::scenario
