// One server's part of transactions of several servers, driven by hand.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "pmstore/shard/two_phase.h"
#include "tests/unit/pmstore/shard/store_fixture.h"

namespace pmstore::internal {

inline const std::vector<ShardParticipant> kOthers = {{99, {78, 2}, 5, 1, 0, 0, 0}};

class TwoPhaseFixture : public ::testing::Test {
 protected:
  TwoPhaseFixture() { s_.begin_session(); }

  using State = TwoPhase::State;

  TwoPhase& two_phase() { return s_.store().two_phase(); }
  static TxId id_of(uint64_t number) { return {StoreInRegion::kClient, number}; }

  Status lock(const TransactionMessage& message) {
    const auto bytes = message.message();
    const auto view = decode_commit(StoreInRegion::kClient, bytes);
    PMSTORE_CHECK(view.has_value(), "a test's message is well-formed");
    last_ = s_.last_id();
    return two_phase().lock(*view, kOthers, now_ns_);
  }
  Status prepare(const std::vector<ReadCheck>& reads = {},
                 const std::vector<AbsenceCheck>& absences = {}) {
    return finish(two_phase().prepare(last_, std::as_bytes(std::span(reads)),
                                      std::as_bytes(std::span(absences))));
  }
  Status commit() { return commit(last_); }
  Status commit(TxId id) { return finish(two_phase().commit(id, 0)); }
  Status abort() { return finish(two_phase().abort(last_, 0)); }
  // Nothing else waits.
  Status finish(Status logged) {
    if (!logged || s_.store().group_size() == 0) return logged;
    const auto durable = s_.store().finish_group();
    return durable ? Status() : Status(durable.error());
  }
  void expect(std::string_view key, std::string_view value) {
    const auto got = s_.get(key);
    ASSERT_TRUE(got) << key << ": " << got.error().to_string();
    EXPECT_TRUE(got->found()) << key;
    EXPECT_EQ(got->value, value) << key;
  }
  void expect_absent(std::string_view key) {
    const auto got = s_.get(key);
    ASSERT_TRUE(got) << key << ": " << got.error().to_string();
    EXPECT_FALSE(got->found()) << key;
  }
  void expect_locked(std::string_view key) {
    EXPECT_EQ(s_.get(key).code(), ErrorCode::kConflict) << key;
  }
  TransactionMessage put(std::string_view key, std::string_view value) {
    return s_.transaction().write(WriteKind::kPut, s_.table(), key, value);
  }
  // An update in place, a move to a larger slot, an insert, and an erase.
  void put_old_values() {
    for (const char* key : {"same", "moved", "gone"}) ASSERT_TRUE(s_.put(key, "old"));
  }
  TransactionMessage change_all() {
    return s_.transaction()
        .write(WriteKind::kPut, s_.table(), "same", "new")
        .write(WriteKind::kPut, s_.table(), "moved", std::string(500, 'n'))
        .write(WriteKind::kInsert, s_.table(), "fresh", "new")
        .write(WriteKind::kErase, s_.table(), "gone", {});
  }
  void expect_locked_all() {
    for (const char* key : {"same", "moved", "fresh", "gone"}) expect_locked(key);
  }
  void expect_old() {
    for (const char* key : {"same", "moved", "gone"}) expect(key, "old");
    expect_absent("fresh");
  }
  void expect_new() {
    expect("same", "new");
    expect("moved", std::string(500, 'n'));
    expect("fresh", "new");
    expect_absent("gone");
  }

  StoreInRegion s_{8 << 20};
  TxId last_;
  uint64_t now_ns_ = 1000;
};

}  // namespace pmstore::internal
