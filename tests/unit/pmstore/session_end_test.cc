// Lock discipline rnic: how a session ends while the server's RNIC takes its time.
#include <array>

#include "fabric/local/fault_injection.h"
#include "pmstore/check.h"
#include "pmstore/client/client_session.h"
#include "pmstore/layout/protocol.h"
#include "pmstore/layout/shard_record.h"
#include "tests/unit/pmstore/fail_swaps.h"
#include "tests/unit/pmstore/server_fixture.h"

namespace pmstore {
namespace {

using internal::ClientSession;
using internal::SessionRef;

constexpr uint64_t kMs = 1'000'000;

// The next compare-swap takes effect; its completion and those behind it come later.
class SlowSwap final : public fabric::FaultInjector {
 public:
  explicit SlowSwap(uint64_t delay_ns) : delay_ns_(delay_ns) {}
  fabric::FaultDecision on_request(const fabric::FaultPoint& point) override {
    if (point.request.op != fabric::OpCode::kCompareSwap || std::exchange(seen_, true)) return {};
    return {fabric::Fault::kDelay, delay_ns_};
  }
  bool seen() const { return seen_; }

 private:
  const uint64_t delay_ns_;
  bool seen_ = false;
};

// Beside a client that keeps its lease, a session that is driven by hand.
class SessionEnd : public testing::ClientFixture {
 protected:
  void SetUp() override {
    ClientFixture::SetUp(LockDiscipline::kRnic);
    ASSERT_TRUE(run(client_->put(table_, "alice", "1")));
    by_hand_ = open_session();
    ASSERT_TRUE(by_hand_);
  }
  void TearDown() override {
    by_hand_ = {};
    ClientFixture::TearDown();
  }
  Result<SessionRef> try_open_session(uint64_t client = 7) {
    internal::SessionOptions options;
    options.secret = ClientSecret::of_number(client);
    options.call_timeout_ns = options.connect_timeout_ns = 1000 * kMs;
    return run(
        ClientSession::open(std::move(*fabric::open_device(fabric::Scheme::kLocal, executor_)),
                            std::make_shared<internal::SessionBook>(), uri_, options));
  }
  SessionRef open_session(uint64_t client = 7) {
    auto opened = try_open_session(client);
    if (!opened) {
      ADD_FAILURE() << opened.error().to_string();
      return {};
    }
    const Status ring = run((*opened)->request_ring());
    EXPECT_TRUE(ring) << ring.error().to_string();
    return std::move(*opened);
  }
  Task<Result<fabric::RpcReply>> call(Method method, std::span<const std::byte> message,
                                      uint32_t reply_bytes) {
    return by_hand_->rpc().call(static_cast<uint16_t>(method), message, reply_bytes);
  }
  // The message lies in room_.
  std::span<const std::byte> reservation(std::string_view key) {
    MessageWriter request(room_);
    request.put(by_hand_->prefix());
    request.put(ReserveRequest{1, 10, raw(table_), static_cast<uint16_t>(key.size()), 0, 0, {}});
    request.put_bytes(key);
    return request.message();
  }
  SlotOffset reserve(std::string_view key) {
    const auto reserved = run(call(Method::kReserve, reservation(key), sizeof(ReserveReply)));
    EXPECT_TRUE(reserved) << reserved.error().to_string();
    return SlotOffset{reserved ? MessageReader(reserved->bytes()).get<ReserveReply>().slot : 0};
  }
  Status release(SlotOffset slot) {
    MessageWriter request(room_);
    request.put(by_hand_->prefix());
    request.put(raw(slot));
    const auto released = run(call(Method::kRelease, request.message(), 0));
    if (!released) return Error(released.error());
    return {};
  }
  // Sends a reservation, and goes: its handler at the server is under way for another ms.
  void leave_amid_a_reservation() {
    {
      auto never_heard = call(Method::kReserve, reservation("bob"), sizeof(ReserveReply));
      never_heard.start();
      let_time_pass(kMs / 10);
      ASSERT_FALSE(never_heard.done());
    }
    by_hand_ = {};
    let_time_pass(kMs / 10);
    ASSERT_TRUE(resolving());
  }
  GetReply find(std::string_view key) {
    MessageWriter request(room_);
    request.put(by_hand_->prefix());
    request.put(GetRequest{raw(table_), static_cast<uint16_t>(key.size()), {}});
    request.put_bytes(key);
    const auto got = run(call(Method::kGet, request.message(), 256));
    EXPECT_TRUE(got);
    return got ? MessageReader(got->bytes()).get<GetReply>() : GetReply{};
  }
  // As a commit does it: announces, then locks.
  Status lock(const GetReply& where) {
    auto buffer = by_hand_->buffers().try_take();
    const uint64_t entries[] = {lock_list_entry(SlotOffset{where.slot}), 0};
    std::memcpy(buffer->data, entries, sizeof entries);
    buffer->batch.clear();
    buffer->batch.write(buffer->at(0, sizeof entries), by_hand_->lock_list_of(*buffer))
        .compare_swap(buffer->word_at(0), by_hand_->word_at(SlotOffset{where.slot}),
                      LockWord::unlocked(where.version).bits,
                      LockWord::locked(where.version, by_hand_->hello().owner).bits);
    return run([](ClientSession& session, internal::OpBuffer& to_post) -> Task<Status> {
      co_return co_await session.execute(to_post);
    }(*by_hand_, *buffer));
  }
  // Gives what the lock word was.
  uint64_t swap(const GetReply& where, uint64_t from, uint64_t to) {
    auto buffer = by_hand_->buffers().try_take();
    buffer->batch.clear();
    buffer->batch.compare_swap(buffer->word_at(0), by_hand_->word_at(SlotOffset{where.slot}), from,
                               to);
    EXPECT_TRUE(run([](ClientSession& session, internal::OpBuffer& to_post) -> Task<Status> {
      co_return co_await session.execute(to_post);
    }(*by_hand_, *buffer)));
    return buffer->word(0);
  }
  // A request, which keeps its lease, is answered.
  bool is_served() {
    MessageWriter request(room_);
    request.put(by_hand_->prefix());
    request.put(GetRequest{raw(table_), 5, {}});
    request.put_bytes("other");
    return run(call(Method::kGet, request.message(), 256)).has_value();
  }
  bool resolving() const {
    return server_->stat_json().find("\"resolving\": 1") != std::string::npos;
  }

  SessionRef by_hand_;
  std::array<std::byte, 512> room_;
};

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

// Its requests keep its lease, and must not keep its locks.
TEST_F(SessionEnd, ClientThatKeepsALockAndGoesOnAskingIsEnded) {
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

// A lock that is given up and taken again is another one, although the word is the same when a
// commit that failed has left the version as it was: so it is seen as unlocked in between.
TEST_F(SessionEnd, ClientThatLocksAndUnlocksIsNotEnded) {
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

TEST_F(SessionEnd, ClientThatListsALockOfAnotherIsNotEnded) {
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
