// Transactions of several servers at one of them: locks, redo record, decision, restart, room.
#include "pmstore/shard/two_phase.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "pmstore/check.h"
#include "tests/unit/pmstore/shard/two_phase_fixture.h"

namespace pmstore::internal {
namespace {

using State = TwoPhase::State;

TEST_F(TwoPhaseFixture, NothingIsVisibleBeforeTheDecision) {
  put_old_values();
  ASSERT_TRUE(lock(change_all()));
  expect_locked_all();
  EXPECT_EQ(two_phase().state(last_), State::kLocked);
  ASSERT_TRUE(prepare());
  expect_locked_all();
  EXPECT_EQ(two_phase().state(last_), State::kPrepared);
  ASSERT_TRUE(commit());
  expect_new();
  EXPECT_EQ(two_phase().state(last_), State::kCommitted);
  EXPECT_TRUE(commit()) << "once more does nothing";
  EXPECT_EQ(abort().code(), ErrorCode::kConflict);
  two_phase().forget(last_);
  EXPECT_TRUE(two_phase().empty());
  EXPECT_EQ(s_.store().log().reserved_bytes(), 0u);
}

TEST_F(TwoPhaseFixture, AnAbortLeavesNoTrace) {
  put_old_values();
  const uint64_t used = s_.store().arena().used_slots();
  for (const bool prepared : {false, true}) {
    ASSERT_TRUE(lock(change_all()));
    if (prepared) {
      ASSERT_TRUE(prepare());
    }
    ASSERT_TRUE(abort());
    expect_old();
    EXPECT_TRUE(two_phase().empty());
    EXPECT_EQ(s_.store().arena().used_slots(), used);
    EXPECT_EQ(s_.store().log().reserved_bytes(), 0u);
  }
  EXPECT_TRUE(abort()) << "of one that is not here";
  EXPECT_EQ(commit().code(), ErrorCode::kNotFound);
}

TEST(TwoPhase, WhatIsCommittedHasABoundOfItsOwn) {
  FormatOptions format{2, 64 << 10};
  format.shard_log_bytes = 32 << 20;
  StoreInRegion s(64 << 20, format);
  s.begin_session();
  TwoPhase& two_phase = s.store().two_phase();
  const auto lock = [&] {
    const auto bytes = s.transaction().write(WriteKind::kPut, s.table(), "key", "1").message();
    return two_phase.lock(*decode_commit(StoreInRegion::kClient, bytes), kOthers, 1);
  };
  Status locked = lock();
  size_t committed = 0;
  for (; locked; locked = lock()) {
    ASSERT_TRUE(two_phase.prepare(s.last_id(), {}, {}));
    ASSERT_TRUE(s.store().finish_group());
    ASSERT_TRUE(two_phase.commit(s.last_id(), 0));
    ASSERT_TRUE(s.store().finish_group());
    ++committed;
  }
  EXPECT_EQ(committed, TwoPhase::kMostCommitted);
  EXPECT_EQ(locked.code(), ErrorCode::kBackPressure);
  EXPECT_NE(locked.error().message.find("settle"), std::string::npos);
  two_phase.forget(two_phase.open_transactions().front());
  EXPECT_TRUE(lock());
  EXPECT_TRUE(two_phase.abort(s.last_id(), 0));
}

TEST_F(TwoPhaseFixture, OthersMeetItsLocksAndCommitAround) {
  put_old_values();
  ASSERT_TRUE(s_.put("other", "1"));
  ASSERT_TRUE(lock(change_all()));
  ASSERT_TRUE(prepare());
  EXPECT_EQ(s_.put("same", "x").code(), ErrorCode::kConflict);
  EXPECT_EQ(s_.put("moved", "x").code(), ErrorCode::kConflict);
  EXPECT_EQ(s_.put("fresh", "x").code(), ErrorCode::kConflict);
  EXPECT_EQ(s_.erase("gone").code(), ErrorCode::kConflict);
  EXPECT_TRUE(s_.put("other", "2"));
  EXPECT_TRUE(s_.put("another", "1"));
  EXPECT_EQ(s_.store().drop_table(s_.table()).code(), ErrorCode::kBackPressure);
  ASSERT_TRUE(commit());
  expect_new();
  expect("other", "2");
}

TEST_F(TwoPhaseFixture, ARestartLocksWhatIsUndecidedAgain) {
  put_old_values();
  for (const bool commits : {false, true}) {
    ASSERT_TRUE(lock(change_all()));
    ASSERT_TRUE(prepare());
    for (int i = 0; i < 2; ++i) {
      s_.reopen();
      expect_locked_all();
      ASSERT_EQ(two_phase().state(last_), State::kPrepared);
      ASSERT_EQ(two_phase().part(last_).participants.size(), 1u);
      EXPECT_EQ(two_phase().part(last_).participants[0].name(), kOthers[0].name());
      EXPECT_EQ(s_.put("fresh", "x").code(), ErrorCode::kConflict);
    }
    s_.begin_session();
    ASSERT_TRUE(commits ? commit() : abort());
    commits ? expect_new() : expect_old();
    s_.reopen();
    commits ? expect_new() : expect_old();
    EXPECT_EQ(two_phase().count(State::kPrepared), 0u);
    EXPECT_EQ(s_.store().arena().used_slots(), s_.store().live_records());
    s_.begin_session();
  }
  EXPECT_EQ(two_phase().state(last_), State::kCommitted);
}

TEST_F(TwoPhaseFixture, AnOrderlyStopLeavesACheckpointBesideACommitThatIsRemembered) {
  put_old_values();
  ASSERT_TRUE(lock(change_all()));
  ASSERT_TRUE(prepare());
  ASSERT_TRUE(s_.store().close());
  EXPECT_EQ(s_.store().no_checkpoint(), "transactions of several servers are not decided");
  s_.reopen();
  EXPECT_FALSE(s_.store().recovery().from_checkpoint);
  expect_locked_all();
  ASSERT_TRUE(commit());
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(s_.store().close());
    EXPECT_EQ(s_.store().no_checkpoint(), "");
    s_.reopen();
    EXPECT_TRUE(s_.store().recovery().from_checkpoint);
    EXPECT_EQ(two_phase().state(last_), State::kCommitted);
    expect_new();
    EXPECT_EQ(s_.store().arena().used_slots(), s_.store().live_records());
  }
}

TEST_F(TwoPhaseFixture, WhatIsOnlyLockedIsGoneAfterARestart) {
  put_old_values();
  ASSERT_TRUE(lock(change_all()));
  s_.reopen();
  expect_old();
  EXPECT_TRUE(two_phase().empty());
}

// Both have the same version in the same slot.
TEST_F(TwoPhaseFixture, ARestartDoesNotTakeAnAbortedWriteForTheOneBehindIt) {
  put_old_values();
  ASSERT_TRUE(lock(put("same", "aborted")));
  ASSERT_TRUE(prepare());
  ASSERT_TRUE(abort());
  ASSERT_TRUE(s_.put("same", "right"));
  s_.reopen();
  expect("same", "right");
}

TEST_F(TwoPhaseFixture, TheEndOfASessionGivesUpWhatIsOnlyLocked) {
  put_old_values();
  ASSERT_TRUE(lock(put("same", "a")));
  const TxId locked = last_;
  ASSERT_TRUE(lock(put("moved", "b")));
  ASSERT_TRUE(prepare());
  two_phase().end_session({StoreInRegion::kClient, 1});  // another session
  EXPECT_EQ(two_phase().state(locked), State::kLocked);
  two_phase().end_session(last_);
  EXPECT_FALSE(two_phase().state(locked));
  EXPECT_EQ(two_phase().state(last_), State::kPrepared);
  expect("same", "old");
  expect_locked("moved");
}

TEST_F(TwoPhaseFixture, LocksThatAreTooOldAreGivenUp) {
  put_old_values();
  ASSERT_TRUE(lock(put("same", "a")));
  const TxId old = last_;
  ASSERT_TRUE(lock(put("gone", "a")));
  ASSERT_TRUE(prepare());
  now_ns_ = 2000;
  ASSERT_TRUE(lock(put("moved", "b")));
  two_phase().give_up_locked_before(2000);
  EXPECT_FALSE(two_phase().state(old));
  EXPECT_EQ(two_phase().count(State::kLocked), 1u);
  EXPECT_EQ(two_phase().count(State::kPrepared), 1u) << "only a decision ends it";
  expect("same", "old");
  expect_locked("moved");
}

// ---- validation ----

TEST_F(TwoPhaseFixture, ReadsAreValidatedWhenTheLocksAreHeld) {
  ASSERT_TRUE(s_.put("read", "1"));
  ASSERT_TRUE(s_.put("written", "1"));
  const GetReply read = s_.get("read")->reply;
  const GetReply written = s_.get("written")->reply;
  const std::vector<ReadCheck> reads = {{read.slot, read.version}, {written.slot, written.version}};
  ASSERT_TRUE(lock(put("written", "2")));
  ASSERT_TRUE(prepare(reads)) << "its own lock is no change";
  ASSERT_TRUE(abort());
  ASSERT_TRUE(lock(put("written", "2")));
  ASSERT_TRUE(s_.put("read", "2"));
  EXPECT_EQ(prepare(reads).code(), ErrorCode::kConflict);
  EXPECT_FALSE(two_phase().state(last_)) << "it is given up";
  expect("written", "1");
}

TEST_F(TwoPhaseFixture, OtherKeysAreAbsentBesideItsInserts) {
  s_.store().set_sole_writer();
  constexpr int kInserts = 40;
  const auto name = [](int i) { return "mine" + std::to_string(i); };
  TransactionMessage inserts = s_.transaction();
  for (int i = 0; i < kInserts; ++i) inserts.write(WriteKind::kInsert, s_.table(), name(i), "1");
  const Status locked = lock(inserts);
  ASSERT_TRUE(locked) << locked.error().to_string();
  ASSERT_TRUE(prepare());
  for (int i = 0; i < kInserts; ++i) expect_locked(name(i));
  unsigned in_change = 0;
  for (int i = 0; i < 400; ++i) {
    const std::string other = "other" + std::to_string(i);
    expect_absent(other);
    const auto got = s_.get(other);
    if (!got || got->reply.bucket_version % 2 == 0) continue;
    ++in_change;
    const auto on_absence = s_.transaction()
                                .absent(got->reply.bucket, got->reply.bucket_version)
                                .write(WriteKind::kPut, s_.table(), "written", "1");
    EXPECT_EQ(s_.commit(on_absence).code(), ErrorCode::kConflict);
  }
  EXPECT_GT(in_change, 10u);
  ASSERT_TRUE(commit());
  for (int i = 0; i < kInserts; ++i) expect(name(i), "1");
}

class TwoPhaseAbsence : public TwoPhaseFixture, public ::testing::WithParamInterface<TableKind> {
 protected:
  TwoPhaseAbsence() : ordered_(*s_.store().create_table("ordered", TableKind::kOrdered)) {}
  TableId table() const { return GetParam() == TableKind::kOrdered ? ordered_ : s_.table(); }
  AbsenceCheck absence(std::string_view key) {
    const GetReply reply = get_from(s_.store(), table(), key)->reply;
    return {reply.bucket, reply.bucket_version};
  }
  Status insert(std::string_view key) {
    return s_.commit(s_.transaction().write(WriteKind::kInsert, table(), key, "x"));
  }
  TableId ordered_;
};

// Of the keys that a transaction has found absent it inserts one. Until it is validated nobody may
// insert the other one: the bucket or leaf would not tell.
TEST_P(TwoPhaseAbsence, WhatItHasFoundAbsentBesideItsOwnInsertStaysAbsentUntilItIsValidated) {
  // Two keys of one unit.
  std::string other;
  const auto unit = [&](const std::string& key) {
    return s_.store().index().unit_of(IndexKey::of(table(), key));
  };
  for (int i = 0; other.empty(); ++i) {
    const std::string key = "other" + std::to_string(i);
    if (unit(key) == unit("mine")) other = key;
  }
  const AbsenceCheck seen = absence("mine");
  ASSERT_TRUE(lock(s_.transaction()
                       .absent(seen.bucket, seen.version)
                       .write(WriteKind::kInsert, table(), "mine", "1")));
  EXPECT_EQ(insert(other).code(), ErrorCode::kConflict);
  ASSERT_TRUE(prepare({}, {seen}));
  EXPECT_TRUE(insert(other)) << "it is validated: others come after it";
  ASSERT_TRUE(commit());
  EXPECT_EQ(get_from(s_.store(), table(), "mine")->value, "1");
  EXPECT_EQ(get_from(s_.store(), table(), other)->value, "x");
}

TEST_P(TwoPhaseAbsence, AnInsertByOthersBeforeItsLocksOrElsewhereIsSeen) {
  const AbsenceCheck seen = absence("absent");
  ASSERT_TRUE(s_.put("written", "1"));
  ASSERT_TRUE(lock(put("written", "2")));
  ASSERT_TRUE(insert("absent"));
  EXPECT_EQ(prepare({}, {seen}).code(), ErrorCode::kConflict);
  EXPECT_EQ(lock(put("written", "2").absent(seen.bucket, seen.version)).code(),
            ErrorCode::kConflict);
}

INSTANTIATE_TEST_SUITE_P(Kinds, TwoPhaseAbsence,
                         ::testing::Values(TableKind::kHash, TableKind::kOrdered));

// ---- room ----

TEST_F(TwoPhaseFixture, TruncationKeepsWhatIsUndecidedAndWhatIsNotKnownEverywhere) {
  put_old_values();
  ASSERT_TRUE(lock(change_all()));
  ASSERT_TRUE(prepare());
  const TxId undecided = last_;
  ASSERT_TRUE(lock(put("committed", "1")));
  ASSERT_TRUE(prepare());
  ASSERT_TRUE(commit());
  const TxId committed = last_;
  ASSERT_TRUE(lock(put("forgotten", "1")));
  ASSERT_TRUE(prepare());
  ASSERT_TRUE(commit());
  const TxId forgotten = last_;
  two_phase().forget(forgotten);
  const uint64_t tail = s_.store().log().ring().position().tail_lsn;
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 2000; ++i) ASSERT_TRUE(s_.put("busy", std::to_string(i))) << i;
    ASSERT_GT(s_.store().log().ring().position().start_lsn, tail);
    expect_locked_all();
    s_.reopen();
    EXPECT_EQ(two_phase().state(undecided), State::kPrepared);
    EXPECT_EQ(two_phase().state(committed), State::kCommitted);
    EXPECT_FALSE(two_phase().state(forgotten));
    EXPECT_EQ(two_phase().part(committed).participants[0].name(), kOthers[0].name());
    expect_locked_all();
    s_.begin_session();
  }
  EXPECT_EQ(*s_.store().outcome(committed, true, 0), Outcome::kCommitted);
  EXPECT_EQ(s_.store().outcome(undecided, true, 0).code(), ErrorCode::kCommitUnknown);
  ASSERT_TRUE(commit(undecided));
  expect_new();
  two_phase().forget(undecided);
  two_phase().forget(committed);
  EXPECT_EQ(s_.store().log().reserved_bytes(), 0u);
  for (int i = 0; i < 2000; ++i) ASSERT_TRUE(s_.put("busy", std::to_string(i))) << i;
  EXPECT_EQ(*s_.store().outcome(undecided, true, 0), Outcome::kCommitted);
}

// A later decision of the session says what every participant knows.
TEST_F(TwoPhaseFixture, ARestartRemembersOnlyWhatIsNotKnownEverywhere) {
  ASSERT_TRUE(lock(put("a", "1")));
  ASSERT_TRUE(prepare());
  ASSERT_TRUE(commit());
  const TxId first = last_;
  two_phase().forget_through(first);
  ASSERT_TRUE(lock(put("b", "1")));
  ASSERT_TRUE(prepare());
  ASSERT_TRUE(finish(two_phase().commit(last_, first.sequence)));
  s_.reopen();
  EXPECT_FALSE(two_phase().state(first));
  EXPECT_EQ(two_phase().state(last_), State::kCommitted);
}

TEST_F(TwoPhaseFixture, TheirPartOfTheLogIsBoundedAndOthersGoOn) {
  Status locked;
  std::vector<TxId> all;
  for (int i = 0; locked; ++i) {
    const std::string key = "k" + std::to_string(i);
    locked = lock(put(key, std::string(300, 'v')));
    if (locked) all.push_back(last_);
    if (locked && i % 2 == 0) {
      ASSERT_TRUE(prepare());
    }
  }
  EXPECT_EQ(locked.code(), ErrorCode::kBackPressure);
  EXPECT_GE(all.size(), 3u);
  EXPECT_LE(s_.store().log().reserved_bytes(), s_.store().log().ring().position().data_bytes / 2);
  for (int i = 0; i < 2000; ++i) ASSERT_TRUE(s_.put("busy", std::to_string(i))) << i;
  for (size_t i = 0; i < all.size(); ++i) {
    if (i % 2 == 0) {
      ASSERT_TRUE(commit(all[i]));
    }
  }
  for (const TxId id : all) {
    if (two_phase().state(id) == State::kCommitted) two_phase().forget(id);
    if (two_phase().state(id)) {
      ASSERT_TRUE(finish(two_phase().abort(id, 0)));
    }
  }
  EXPECT_EQ(s_.store().log().reserved_bytes(), 0u);
  EXPECT_EQ(lock(put("large", std::string(10'000, 'v'))).code(), ErrorCode::kTooLarge);
  EXPECT_TRUE(lock(put("small", "1")));
}

TEST_F(TwoPhaseFixture, TheCheckOfAPoolKnowsWhatIsUndecided) {
  put_old_values();
  ASSERT_TRUE(lock(change_all()));
  ASSERT_TRUE(prepare());
  const auto report = check_store(s_.pool());
  ASSERT_TRUE(report) << report.error().to_string();
  EXPECT_TRUE(report->problems.empty()) << report->problems[0];
  EXPECT_EQ(report->live_records, 3u);
}

}  // namespace
}  // namespace pmstore::internal
