// Lock discipline rnic: how a session ends while the server's RNIC takes its time.
#include <array>

#include "pmstore/check.h"
#include "pmstore/layout/shard_record.h"
#include "tests/unit/pmstore/fail_swaps.h"
#include "tests/unit/pmstore/session_by_hand.h"

namespace pmstore {
namespace {

using internal::SessionRef;
using testing::kMs;
using testing::SlowSwap;

class SessionEnd : public testing::SessionByHand {};

TEST_F(SessionEnd, ClientThatWakesUpLocksNothingWhileItsSessionIsResolved) {
  const GetReply alice = find("alice");
  reserve("bob");
  SlowSwap gives_back(100 * kMs);
  {
    const fabric::ScopedFaultInjector installed(gives_back);
    // It is asleep until its lease ends; that of the other client is kept.
    for (int i = 0; i < 20'000 && !resolving(); ++i) let_time_pass(kMs);
    ASSERT_TRUE(resolving() && gives_back.seen());
    EXPECT_FALSE(lock(alice)) << "it is fenced";
    EXPECT_TRUE(resolving());
    let_time_pass(1000 * kMs);
    ASSERT_FALSE(resolving());
  }
  const Status put = run(client_->put(table_, "alice", "2"));
  EXPECT_TRUE(put) << put.error().to_string();
}

TEST_F(SessionEnd, ClientGetsItsNextSessionWhenTheLastOneIsResolved) {
  reserve("bob");
  SlowSwap gives_back(100 * kMs);
  const fabric::ScopedFaultInjector installed(gives_back);
  const auto early = try_open_session();
  ASSERT_FALSE(early) << "what it reserves would be given back with what it had reserved";
  EXPECT_EQ(early.code(), ErrorCode::kBackPressure);
  EXPECT_TRUE(resolving());
  let_time_pass(1000 * kMs);
  by_hand_ = open_session();
  ASSERT_TRUE(by_hand_);
  EXPECT_TRUE(release(reserve("bob")));
}

TEST_F(SessionEnd, HandlerThatIsUnderWayTakesNothingFromTheNextOneAtItsSlot) {
  testing::FailSwaps fails(1, 2, fabric::Fault::kBreakBefore);
  const fabric::ScopedFaultInjector installed(fails);
  leave_amid_a_reservation();
  by_hand_ = open_session(8);
  ASSERT_TRUE(by_hand_);
  const SlotOffset slot = reserve("carol");
  let_time_pass(10 * kMs);
  ASSERT_FALSE(resolving());
  const Status released = release(slot);
  EXPECT_TRUE(released) << released.error().to_string();
}

// Until the server has looked at what has landed in the ring, nobody knows.
TEST_F(SessionEnd, OutcomeIsNotAbortedBeforeTheRingOfAClientThatIsGoneWasWalked) {
  const GetReply alice = find("alice");
  const uint64_t sequence = by_hand_->ring().granted().next_sequence;
  ASSERT_TRUE(lock(alice));
  std::array<std::byte, 512> redo_room;
  ShardRedoBuilder redo(redo_room, numbered::id_of(7), by_hand_->prefix().epoch);
  redo.add(SlotOffset{alice.slot}, table_, alice.version + 1, RecordState::kLive, "alice", "2");
  ASSERT_TRUE(run(by_hand_->ring().append(sequence, redo.finish())));
  {
    testing::FailSwaps fails(1, 2, fabric::Fault::kBreakBefore);
    const fabric::ScopedFaultInjector installed(fails);
    leave_amid_a_reservation();
    EXPECT_EQ(run(client_->outcome({numbered::id_of(7), sequence})).code(),
              ErrorCode::kCommitUnknown);
    let_time_pass(10 * kMs);
  }
  ASSERT_FALSE(resolving());
  EXPECT_EQ(run(client_->outcome({numbered::id_of(7), sequence})), Outcome::kCommitted);
  EXPECT_EQ(*run(client_->get(table_, "alice")), "2");
}

TEST_F(SessionEnd, ReservationIsReleasedOnlyByTheClientThatHasIt) {
  const SlotOffset slot = reserve("bob");
  SessionRef first = std::exchange(by_hand_, open_session(8));
  ASSERT_TRUE(by_hand_);
  EXPECT_EQ(release(slot).code(), ErrorCode::kInvalidArgument);
  by_hand_ = std::move(first);
  const Status released = release(slot);
  EXPECT_TRUE(released) << released.error().to_string();
}

// Nobody hears when work without a completion has ended: it may still write into its buffer.
TEST_F(SessionEnd, BufferThatIsGivenBackAmidUnsignaledWorkServesNobodyElse) {
  const SlotOffset alice{find("alice").slot};
  internal::BufferPool& buffers = by_hand_->buffers();
  const size_t free = buffers.free_buffers();
  for (const bool signaled : {true, false}) {
    {
      const internal::BufferLease buffer = buffers.try_take();
      buffer->batch.clear();
      buffer->batch.read(buffer->at(0, 64), by_hand_->record_at(alice));
      ASSERT_TRUE(run(by_hand_->post(*buffer, signaled)));
      let_time_pass(kMs);
    }
    EXPECT_EQ(buffers.free_buffers(), signaled ? free : free - 1);
  }
}

// Of three commits on one session the first loses its lock to somebody who may not take it, and
// gives the session up; the second then leaves its own lock to the server; the third comes to its
// locks after that, with the buffer and so the list of the second.
TEST_F(SessionEnd, LocksThatACommitLeavesBehindStayAnnounced) {
  ASSERT_TRUE(client_->session().one_sided_commit);
  for (const char* key : {"a", "b", "c", "z"}) ASSERT_TRUE(run(client_->put(table_, key, "old")));
  Transaction first = client_->begin();
  Transaction second = client_->begin();
  Transaction third = client_->begin();
  const auto change = [&](Transaction& tx, const char* key) {
    ASSERT_TRUE(run(tx.get(table_, key)));
    tx.put(table_, key, "new");
  };
  change(first, "z");
  change(second, "a");
  change(second, "b");
  change(third, "c");
  third.insert(table_, "d", "new");
  auto other = connect();
  ASSERT_TRUE(run(other->put(table_, "b", "its")));
  const GetReply z = find("z");

  constexpr auto kConnector = fabric::FaultSide::kConnector;
  Task<Status> ends_first = first.commit();
  {
    // It has announced, locked, and writes its redo record.
    fabric::FailNthRequest log(3, kConnector, {fabric::Fault::kDelay, kMs});
    const fabric::ScopedFaultInjector installed(log);
    ends_first.start();
    ASSERT_TRUE(log.fired());
  }
  const uint64_t locked = swap(z, 0, 0);
  ASSERT_TRUE(LockWord{locked}.is_locked());
  ASSERT_EQ(swap(z, locked, LockWord::unlocked(z.version + 9).bits), locked);
  {
    // It writes the record, and hears a while later that its lock was gone.
    fabric::FailNthRequest in_place(1, kConnector, {fabric::Fault::kDelay, 5 * kMs});
    const fabric::ScopedFaultInjector installed(in_place);
    let_time_pass(2 * kMs);
    ASSERT_TRUE(in_place.fired());
    ASSERT_TRUE(ends_first.done() && ends_first.take());
  }
  Task<Status> ends_second = second.commit();
  ends_second.start();
  Task<Status> ends_third = third.commit();
  {
    SlowSwap reserves(20 * kMs);
    const fabric::ScopedFaultInjector installed(reserves);
    ends_third.start();
    let_time_pass(kMs);
    ASSERT_TRUE(reserves.seen());
  }
  EXPECT_FALSE(ends_second.done());
  EXPECT_EQ(finish(std::move(ends_second)).code(), ErrorCode::kConflict);
  EXPECT_FALSE(ends_third.done());
  const Status third_ended = finish(std::move(ends_third));
  EXPECT_TRUE(!third_ended && third_ended.code() == ErrorCode::kDisconnected);

  ASSERT_TRUE(run(client_->put(table_, "x", "1")));
  EXPECT_EQ(client_->session().reconnects, 1u);
  for (const char* key : {"a", "b", "c"}) {
    const Status put = run(other->put(table_, key, "after"));
    EXPECT_TRUE(put) << key << ": " << put.error().to_string();
  }
  run(other->close());
}

TEST_F(SessionEnd, StopWaitsUntilWhatClientsHaveLeftIsDecided) {
  reserve("bob");
  run(client_->close());
  client_.reset();
  SlowSwap gives_back(100 * kMs);
  {
    const fabric::ScopedFaultInjector installed(gives_back);
    const Status stopped = run(server_->stop());
    EXPECT_TRUE(stopped) << stopped.error().to_string();
  }
  EXPECT_TRUE(gives_back.seen());
  server_.reset();
  pool_ = std::move(*persist::Pool::in_region(region_.bytes(), domain_, false));
  const auto report = check_store(*pool_);
  ASSERT_TRUE(report) << report.error().to_string();
  EXPECT_TRUE(report->clean);
}

// Each of its commits announces in a list of its own.
TEST_F(SessionEnd, LocksOfAllTheCommitsOfAClientThatIsGoneAreFreed) {
  for (const char* key : {"a", "b"}) ASSERT_TRUE(run(client_->put(table_, key, "old")));
  {
    auto dies = connect();
    Transaction first = dies->begin();
    Transaction second = dies->begin();
    ASSERT_TRUE(run(first.get(table_, "a")));
    ASSERT_TRUE(run(second.get(table_, "b")));
    first.put(table_, "a", "new");
    second.put(table_, "b", "new");
    SlowSwap locks(100 * kMs);
    const fabric::ScopedFaultInjector installed(locks);
    Task<Status> ends_first = first.commit();
    Task<Status> ends_second = second.commit();
    ends_first.start();
    ends_second.start();
    let_time_pass(kMs);
    ASSERT_TRUE(locks.seen() && !ends_first.done() && !ends_second.done());
    for (const char* key : {"a", "b"}) {
      EXPECT_EQ(run(client_->put(table_, key, "early")).code(), ErrorCode::kConflict) << key;
    }
  }
  let_time_pass(1000 * kMs);
  ASSERT_FALSE(resolving());
  for (const char* key : {"a", "b"}) {
    const Status put = run(client_->put(table_, key, "after"));
    EXPECT_TRUE(put) << key << ": " << put.error().to_string();
  }
}

}  // namespace
}  // namespace pmstore
