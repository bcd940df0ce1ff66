// Lock discipline rnic: what becomes of a session whose client keeps a lock.
#include <array>
#include <string>

#include "tests/unit/pmstore/session_by_hand.h"

namespace pmstore {
namespace {

using testing::kMs;
using testing::SlowSwap;

// Each compare-swap takes effect; completions come later.
class SlowSwaps final : public fabric::FaultInjector {
 public:
  fabric::FaultDecision on_request(const fabric::FaultPoint& point) override {
    if (point.request.op != fabric::OpCode::kCompareSwap) return {};
    return {fabric::Fault::kDelay, kMs};
  }
};

class KeptLock : public testing::SessionByHand {
 protected:
  // A device gives a request up after 10 s, which are more leases than a test takes.
  KeptLock() { server_options_.lease_ms = 1000; }
  // Reserves slots for `key` and releases them, until an error. Counts the answers.
  Task<void> ask_without_pause(std::string key, uint64_t& answers) {
    std::array<std::byte, 512> room;
    while (true) {
      MessageWriter reserve(room);
      reserve.put(by_hand_->prefix());
      reserve.put(ReserveRequest{1, 10, raw(table_), static_cast<uint16_t>(key.size()), 0, 0, {}});
      reserve.put_bytes(key);
      const auto reserved =
          co_await call(Method::kReserve, reserve.message(), sizeof(ReserveReply));
      if (!reserved) co_return;
      const uint64_t slot = MessageReader(reserved->bytes()).get<ReserveReply>().slot;
      MessageWriter release(room);
      release.put(by_hand_->prefix());
      release.put(slot);
      const auto released = co_await call(Method::kRelease, release.message(), 0);
      if (!released) co_return;
      answers += 2;
    }
  }
  // Opens the session by hand again, with a client that waits longer for answers than any server
  // may take in the test.
  void be_patient() {
    call_timeout_ns_ = 100 * lease();
    by_hand_ = {};
    let_time_pass(kMs);
    by_hand_ = open_session(8);
    ASSERT_TRUE(by_hand_);
  }
};

// Its requests keep its lease, and must not keep its locks.
TEST_F(KeptLock, ClientThatKeepsALockAndGoesOnAskingIsEnded) {
  ASSERT_TRUE(lock(find("alice")));
  const uint64_t quarter_ns = uint64_t{server_options_.lease_ms} * kMs / 4;
  for (int i = 0; i < 4; ++i) {
    let_time_pass(quarter_ns);
    EXPECT_EQ(run(client_->put(table_, "alice", "early")).code(), ErrorCode::kConflict) << i;
    EXPECT_TRUE(is_served()) << i;
  }
  let_time_pass(3 * quarter_ns);
  EXPECT_FALSE(is_served());
  EXPECT_TRUE(run(client_->put(table_, "alice", "after")));
}

// At each look of the server one of its requests is under way. What it holds up is its own.
TEST_F(KeptLock, ClientThatKeepsALockAndAsksWithoutPauseIsEnded) {
  ASSERT_TRUE(lock(find("alice")));
  SlowSwaps swaps;
  const fabric::ScopedFaultInjector installed(swaps);
  uint64_t answers = 0;
  auto one = ask_without_pause("bob", answers);
  auto other = ask_without_pause("carol", answers);
  one.start();
  let_time_pass(kMs / 2);
  other.start();
  for (int i = 0; i < 4; ++i) {
    let_time_pass(lease() / 4 - 10 * kMs);
    EXPECT_FALSE(one.done() || other.done()) << i;
    EXPECT_EQ(run(client_->put(table_, "alice", "early")).code(), ErrorCode::kConflict) << i;
    EXPECT_TRUE(run(client_->put(table_, "dora", "honest"))) << i;
  }
  EXPECT_GT(answers, 500u);
  let_time_pass(lease() / 2);
  EXPECT_TRUE(one.done() && other.done());
  EXPECT_FALSE(is_served());
  EXPECT_TRUE(run(client_->put(table_, "alice", "after")));
}

// A commit of the session holds a lock, and waits until another one is applied.
TEST_F(KeptLock, ClientWhoseRequestWaitsForTheServersRnicKeepsItsLocksMeanwhile) {
  be_patient();
  ASSERT_TRUE(lock(find("alice")));
  SlowSwap reserves(3 * lease());
  const fabric::ScopedFaultInjector installed(reserves);
  auto waits = call(Method::kReserve, reservation("bob"), sizeof(ReserveReply));
  waits.start();
  let_time_pass(kMs / 2);
  ASSERT_TRUE(reserves.seen());
  let_time_pass(3 * lease() - kMs);
  ASSERT_FALSE(waits.done());
  EXPECT_TRUE(is_served());
  let_time_pass(2 * kMs);
  ASSERT_TRUE(waits.done());
  EXPECT_TRUE(waits.take());
  let_time_pass(lease() + lease() / 2);
  EXPECT_FALSE(is_served()) << "it keeps the lock although it waits for nothing";
  EXPECT_TRUE(run(client_->put(table_, "alice", "after")));
}

TEST_F(KeptLock, ClientThatKeepsALockIsEndedAlsoWhenTheServersRnicStaysAway) {
  be_patient();
  ASSERT_TRUE(lock(find("alice")));
  SlowSwap reserves(9 * lease());
  const fabric::ScopedFaultInjector installed(reserves);
  auto waits = call(Method::kReserve, reservation("bob"), sizeof(ReserveReply));
  waits.start();
  let_time_pass(kMs / 2);
  ASSERT_TRUE(reserves.seen());
  let_time_pass(4 * lease());
  ASSERT_FALSE(waits.done());
  let_time_pass(2 * lease());
  ASSERT_TRUE(waits.done());
  EXPECT_EQ(waits.take().code(), ErrorCode::kDisconnected);
}

TEST_F(KeptLock, ServerThatStoodStillEndsNoClientThatHoldsALock) {
  const GetReply where = find("alice");
  ASSERT_TRUE(lock(where));
  for (int i = 0; i < 2; ++i) {
    clock_.advance_to(executor_.now_ns() + 10 * lease());
    let_time_pass(kMs);
    EXPECT_TRUE(is_served()) << i;
  }
  const LockWord locked = LockWord::locked(where.version, by_hand_->hello().owner);
  EXPECT_EQ(swap(where, locked.bits, LockWord::unlocked(where.version).bits), locked.bits);
  EXPECT_TRUE(run(client_->put(table_, "alice", "after")));
  EXPECT_EQ(client_->session().reconnects, 0u);
}

// A lock that is given up and taken again is another one, although the word is the same when a
// commit that failed has left the version as it was: so it is seen as unlocked in between.
TEST_F(KeptLock, ClientThatLocksAndUnlocksIsNotEnded) {
  const GetReply where = find("alice");
  const LockWord unlocked = LockWord::unlocked(where.version);
  const LockWord locked = LockWord::locked(where.version, by_hand_->hello().owner);
  const uint64_t quarter_ns = uint64_t{server_options_.lease_ms} * kMs / 4;
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(lock(where)) << i;
    let_time_pass(quarter_ns + kMs);
    EXPECT_EQ(swap(where, locked.bits, unlocked.bits), locked.bits) << i;
    let_time_pass(quarter_ns + kMs);
    EXPECT_TRUE(is_served()) << i;
  }
}

TEST_F(KeptLock, ClientThatListsALockOfAnotherIsNotEnded) {
  const GetReply where = find("alice");
  auto other = open_session(8);
  ASSERT_TRUE(other);
  std::swap(by_hand_, other);
  ASSERT_TRUE(lock(where));
  std::swap(by_hand_, other);
  // Its swap fails, and its list names the slot.
  ASSERT_TRUE(lock(where));
  const uint64_t quarter_ns = uint64_t{server_options_.lease_ms} * kMs / 4;
  for (int i = 0; i < 7; ++i) {
    let_time_pass(quarter_ns);
    EXPECT_TRUE(is_served()) << i;
  }
  EXPECT_TRUE(run(client_->put(table_, "alice", "after"))) << "the other one has been ended";
}

}  // namespace
}  // namespace pmstore
