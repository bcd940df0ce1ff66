// A coordinator that is driven by hand, at one of its servers.
#include "pmstore/batch_writer.h"
#include "pmstore/client/embedded.h"
#include "pmstore/client/reader.h"
#include "pmstore/joint_commit.h"
#include "pmstore/shard/key_index.h"
#include "tests/unit/pmstore/lost_page.h"
#include "tests/unit/pmstore/two_phase_session_fixture.h"

namespace pmstore {
namespace {

using internal::SessionRef;
using nlohmann::json;
using testing::kMs;
using testing::TwoPhaseSession;

TEST_F(TwoPhaseSession, LocksWithoutARedoRecordLiveForLockMs) {
  ASSERT_TRUE(lock("alice"));
  EXPECT_EQ(two_phase().at("locked"), 1);
  EXPECT_EQ(alice(), "Conflict");
  let_time_pass(900 * kMs);
  EXPECT_EQ(alice(), "Conflict");
  let_time_pass(500 * kMs);
  EXPECT_EQ(alice(), "1");
  EXPECT_EQ(prepare().code(), ErrorCode::kNotFound);
  EXPECT_EQ(two_phase().at("log_bytes"), 0);
}

TEST_F(TwoPhaseSession, ASessionThatHasPreparedHasALease) {
  let_time_pass(60'000 * kMs);
  ASSERT_TRUE(coordinator_->usable()) << "it holds nothing";
  ASSERT_TRUE(lock("alice"));
  ASSERT_TRUE(prepare());
  EXPECT_EQ(vote(id()).code(), ErrorCode::kCommitUnknown) << "its coordinator may still abort it";
  EXPECT_EQ(decide(other_, Decision::kCommit).code(), ErrorCode::kCommitUnknown);
  let_time_pass(10'000 * kMs);
  EXPECT_FALSE(coordinator_->usable());
  EXPECT_EQ(alice(), "Conflict") << "only a decision ends what is prepared";
  EXPECT_EQ(listed(), 1u);
  EXPECT_EQ(vote(id()), Vote::kPrepared);
  ASSERT_TRUE(decide(other_, Decision::kCommit));
  EXPECT_EQ(vote(id()), Vote::kCommitted);
  EXPECT_EQ(alice(), "2");
  EXPECT_EQ(listed(), 1u) << "not known to be committed everywhere";
  ASSERT_TRUE(decide(other_, Decision::kForget));
  EXPECT_EQ(listed(), 0u);
}

// Of a client in the server's process.
TEST_F(TwoPhaseSession, AReadWithoutMessagesWaitsForWhatIsLocked) {
  SessionRef direct = open_session(9);
  direct->call_directly(
      internal::Embedded::calls_of(*server_, numbered::id_of(9), std::make_shared<uint64_t>(0)));
  internal::Reader reader(executor_, 0);
  const auto read = [&](std::string& value) -> Task<ErrorCode> {
    const auto located =
        co_await reader.locate(direct, table_, "alice", internal::ValueRoom(value));
    co_return located ? ErrorCode{} : located.code();
  };
  std::string value;
  ASSERT_TRUE(lock("alice"));
  EXPECT_EQ(run(read(value)), ErrorCode::kConflict) << "it does not wait for ever";
  Task<ErrorCode> reading = read(value);
  reading.start();
  EXPECT_FALSE(reading.done());
  ASSERT_TRUE(decide(coordinator_, Decision::kAbort));
  const auto pause = [&]() -> Task<void> { co_await executor_.sleep_for(kMs); };
  run(pause());
  ASSERT_TRUE(reading.done());
  EXPECT_EQ(reading.take(), ErrorCode{});
  EXPECT_EQ(value, "1");
  direct = {};
}

TEST_F(TwoPhaseSession, TheLeaseEndsWithTheDecision) {
  for (const Decision decision : {Decision::kCommit, Decision::kAbort}) {
    const uint64_t number = decision == Decision::kCommit ? 0 : 1;
    ASSERT_TRUE(lock("alice", number));
    ASSERT_TRUE(prepare(number));
    ASSERT_TRUE(decide(coordinator_, decision, number));
  }
  let_time_pass(60'000 * kMs);
  EXPECT_TRUE(coordinator_->usable());
  EXPECT_EQ(alice(), "2");
}

TEST_F(TwoPhaseSession, NotHereIsSaidOnlyWhenItIsTrueForEver) {
  const TxId never = id(3);
  EXPECT_EQ(vote(never).code(), ErrorCode::kCommitUnknown) << "it may still be on its way";
  EXPECT_EQ(vote({never.client, never.sequence + (uint64_t{9} << 32)}).code(),
            ErrorCode::kInvalidArgument);
  ASSERT_TRUE(lock("alice"));
  EXPECT_EQ(vote(id()).code(), ErrorCode::kCommitUnknown) << "it may still be prepared";
  ASSERT_TRUE(decide(coordinator_, Decision::kAbort));
  EXPECT_EQ(vote(id()), Vote::kNotHere) << "the number is not executed again";
  coordinator_->drop();
  coordinator_ = {};
  let_time_pass(kMs);
  EXPECT_EQ(vote(never), Vote::kNotHere);
  EXPECT_TRUE(decide(other_, Decision::kAbort, never)) << "nothing to do";
  EXPECT_EQ(decide(other_, Decision::kCommit, never).code(), ErrorCode::kNotFound);
}

TEST_F(TwoPhaseSession, TheEndOfTheSessionGivesUpWhatIsOnlyLocked) {
  ASSERT_TRUE(lock("alice"));
  const TxId name = id();
  coordinator_ = {};
  let_time_pass(kMs);
  EXPECT_EQ(alice(), "1");
  EXPECT_EQ(vote(name), Vote::kNotHere);
}

TEST_F(TwoPhaseSession, ACommitIsForgottenWhenItsClientKnowsIt) {
  ASSERT_TRUE(lock("alice"));
  ASSERT_TRUE(prepare());
  ASSERT_TRUE(decide(coordinator_, Decision::kCommit));
  EXPECT_EQ(two_phase().at("committed"), 1);
  known_through_ = id().sequence;
  ASSERT_TRUE(lock("alice", 1));
  EXPECT_EQ(two_phase().at("committed"), 0);
}

TEST_F(TwoPhaseSession, ANumberIsExecutedOnce) {
  ASSERT_TRUE(lock("alice"));
  ASSERT_TRUE(decide(coordinator_, Decision::kAbort));
  EXPECT_EQ(lock("alice").code(), ErrorCode::kProtocol);
  let_time_pass(kMs);
  EXPECT_FALSE(coordinator_->usable());
}

TEST_F(TwoPhaseSession, ARequestThatDoesNotDecodeCostsTheConnection) {
  EXPECT_EQ(lock("alice", 0, 0).code(), ErrorCode::kProtocol) << "more than it says";
  for (const Method method : {Method::kPrepare, Method::kDecide, Method::kVote}) {
    const SessionRef session = open_session(9);
    std::array<std::byte, 64> room;
    MessageWriter request(room);
    request.put(session->prefix());
    request.put(uint64_t{1});
    EXPECT_EQ(send(session, method, request).code(), ErrorCode::kProtocol);
  }
  EXPECT_EQ(alice(), "1");
}

TEST_F(TwoPhaseSession, WhatAConnectedCoordinatorHasPreparedIsNotForced) {
  ASSERT_TRUE(lock("alice"));
  ASSERT_TRUE(prepare());
  const TxId name = id();
  const auto force = [&] {
    return run(force_decision({client_.get()}, name, ForcedDecision::kAbort, {99}));
  };
  EXPECT_EQ(force().code(), ErrorCode::kCommitUnknown);
  EXPECT_EQ(two_phase().at("prepared"), 1);
  coordinator_ = {};
  let_time_pass(1000 * kMs);
  const auto forced = force();
  ASSERT_TRUE(forced) << forced.error().to_string();
  EXPECT_EQ(forced->aborted, 1u);
  EXPECT_EQ(two_phase().at("prepared"), 0);
  EXPECT_EQ(alice(), "1");
}

// Another insert into the bucket would not change its version.
TEST_F(TwoPhaseSession, AbsenceBesideAPreparedInsertIsNotValidated) {
  const auto bucket = [&](const std::string& key) {
    return internal::IndexKey::of(table_, key).hash.bucket_of_depth(kLeastDepth);
  };
  std::string other;
  for (int i = 0; other.empty(); ++i) {
    const std::string key = "other" + std::to_string(i);
    if (bucket(key) == bucket("fresh")) other = key;
  }
  ASSERT_TRUE(lock("fresh"));
  ASSERT_TRUE(prepare());
  EXPECT_EQ(run(client_->get(table_, other)).code(), ErrorCode::kNotFound);
  Transaction reads = client_->begin();
  EXPECT_EQ(run(reads.get(table_, other)).code(), ErrorCode::kNotFound);
  EXPECT_TRUE(run(reads.get(table_, "alice")));
  EXPECT_EQ(run(reads.commit()).code(), ErrorCode::kConflict);
  ASSERT_TRUE(decide(coordinator_, Decision::kCommit));
  EXPECT_EQ(*run(client_->get(table_, "fresh")), "2");
}

// Steps that have logged something wait for one msync, and it fails.
class FailingMsync : public TwoPhaseSession {
 protected:
  FailingMsync() {
    domain_ = persist::Domain::kNone;
    server_options_.group_above_ns = 0;
    server_options_.observer = &observed_;
  }
  Task<Status> call(Method method, RequestPrefix prefix, auto request) {
    std::array<std::byte, 128> room;
    MessageWriter message(room);
    message.put(prefix);
    message.put(request);
    const auto answer = co_await coordinator_->rpc().call(static_cast<uint16_t>(method),
                                                          message.message(), sizeof(CommitReply));
    co_return answer ? Status() : Status(answer.error());
  }
  Task<Status> preparing(uint64_t number) {
    return call(Method::kPrepare, coordinator_->prefix(),
                PrepareRequest{id(number).sequence, 0, 0});
  }
  Task<Status> deciding(Decision decision, uint64_t number) {
    return call(Method::kDecide, coordinator_->prefix(),
                DecideRequest{id(number).client, id(number).sequence, decision, {}});
  }
  uint64_t msyncs() const { return pool_->memory().stats().msyncs; }

  testing::Failures observed_;
};

TEST_F(FailingMsync, LeavesEveryStepOfItsGroupUnknownAndEndsTheService) {
  const char* const keys[] = {"alice", "bob", "carol", "dave"};
  for (uint64_t i = 0; i < 4; ++i) ASSERT_TRUE(lock(keys[i], i)) << i;
  for (uint64_t i = 0; i < 2; ++i) ASSERT_TRUE(prepare(i)) << i;
  {
    const testing::LostPage lost(pool_->memory());
    std::vector<Task<Status>> steps;
    steps.push_back(preparing(2));
    steps.push_back(deciding(Decision::kCommit, 0));
    steps.push_back(deciding(Decision::kAbort, 1));
    steps.push_back(preparing(3));
    const uint64_t before = msyncs();
    for (auto& each : steps) each.start();
    for (auto& each : steps) {
      const Status ended = finish(std::move(each));
      EXPECT_EQ(ended.code(), ErrorCode::kCommitUnknown);
    }
    const uint64_t tried = msyncs();
    EXPECT_GT(tried, before);
    EXPECT_EQ(observed_.failures, 1);
    EXPECT_EQ(observed_.last.find('\n'), std::string::npos);
    EXPECT_EQ(decide(coordinator_, Decision::kCommit, 2).code(), ErrorCode::kIo);
    EXPECT_EQ(prepare(3).code(), ErrorCode::kIo);
    EXPECT_EQ(alice().substr(0, 2), "Io");
    EXPECT_EQ(run(server_->stop()).code(), ErrorCode::kIo);
    EXPECT_EQ(msyncs(), tried) << "a failed msync is not repeated";
    EXPECT_EQ(observed_.failures, 1);
    coordinator_ = other_ = {};
    client_.reset();
    server_.reset();
  }
  // The next start finds what was written, and nothing of it twice.
  restart();
  client_ = connect();
  coordinator_ = open_session(9);
  other_ = open_session(8);
  EXPECT_EQ(alice(), "2") << "its decision to commit had been written";
  EXPECT_EQ(two_phase().at("prepared"), 2) << "carol's and dave's";
}

TEST_F(TwoPhaseSession, ABatchThatHasNoRoomBesideWhatTheyReserveBecomesTwo) {
  for (uint64_t i = 0; i < 8; ++i) ASSERT_TRUE(lock("k" + std::to_string(i), i)) << i;
  const std::string largest(client_->session().max_redo_bytes - 200, 'v');
  const Status alone = run(client_->put(table_, "large", largest));
  EXPECT_EQ(alone.code(), ErrorCode::kBackPressure);
  EXPECT_NE(alone.error().message.find("undecided transactions"), std::string::npos);
  BatchWriter writer(*client_, table_);
  uint64_t records = 0;
  for (; writer.transactions() == 0; ++records) {
    const Status put = run(writer.put(std::to_string(records), std::string(400, 'v')));
    ASSERT_TRUE(put) << put.error().to_string();
  }
  EXPECT_GE(writer.transactions(), 2u);
  ASSERT_TRUE(run(writer.flush()));
  EXPECT_EQ(writer.written(), records);
}

}  // namespace
}  // namespace pmstore
