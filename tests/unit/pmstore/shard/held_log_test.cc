// Moves of records in a shard log that transactions of several servers hold.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/pmstore/shard/record_frames_fixture.h"
#include "tests/unit/pmstore/shard/two_phase_fixture.h"

namespace pmstore::internal {
namespace {

using small_frames::key_of;

// Slots of 20 KiB, three in a slab; the log has 64 KiB.
class HeldLog : public TwoPhaseFixture {
 protected:
  static constexpr int kRecords = 180;

  static std::string large(int i) { return std::string(20'000, static_cast<char>('a' + i % 26)); }
  // One of three records stays.
  void make_sparse() {
    for (int i = 0; i < kRecords; ++i) ASSERT_TRUE(s_.put(key_of(i), large(i)));
    for (int i = 0; i < kRecords; ++i) {
      if (i % 3 == 0) continue;
      ASSERT_TRUE(s_.erase(key_of(i)));
    }
    ASSERT_TRUE(s_.store().arena().looks_sparse());
  }
  bool lock_one() {
    if (!lock(put("held" + std::to_string(names_++), "v"))) return false;
    held_.push_back(last_);
    return true;
  }
  void hold_the_log() {
    while (lock_one()) ASSERT_TRUE(prepare());
  }
  void release_one() {
    ASSERT_FALSE(held_.empty());
    ASSERT_TRUE(finish(two_phase().abort(held_.back(), 0)));
    held_.pop_back();
  }
  // Does it move something?
  bool step_moves() {
    const uint64_t before = s_.store().moved_records();
    EXPECT_TRUE(*s_.store().move_some_records());
    return s_.store().moved_records() > before;
  }
  std::vector<TxId> held_;
  int names_ = 100;  // each holds as much
};

TEST_F(HeldLog, MovesAreHeldUntilEnoughOfItIsReleased) {
  int calls = 0;
  s_.store().log().on_less_held([&] { ++calls; });
  make_sparse();
  EXPECT_FALSE(s_.store().moving_is_held());
  hold_the_log();
  const size_t all = held_.size();
  ASSERT_GT(all, 5u);
  calls = 0;
  int in_vain = 0;
  int still_held = 0;
  for (; !step_moves(); ++in_vain) {
    ASSERT_LE(in_vain, 6) << "each has lacked less than half of what the one before has";
    for (; s_.store().moving_is_held(); ++still_held) release_one();
  }
  EXPECT_GT(still_held, in_vain) << "one was not enough";
  EXPECT_EQ(calls, static_cast<int>(all - held_.size()));
  EXPECT_FALSE(held_.empty()) << "not all was needed";
  while (*s_.store().move_some_records()) {
  }
  for (int i = 0; i < kRecords; i += 3) EXPECT_EQ(s_.get(key_of(i))->value, large(i)) << i;
}

TEST_F(HeldLog, MovesAreHeldJustUntilTheyHaveRoom) {
  make_sparse();
  while (lock_one()) {
  }
  ASSERT_FALSE(step_moves());
  while (s_.store().moving_is_held()) {
    EXPECT_FALSE(step_moves()) << held_.size();
    release_one();
  }
  EXPECT_TRUE(step_moves());
  EXPECT_FALSE(held_.empty());
}

TEST_F(HeldLog, WhatIsLockedAgainOrPreparedHoldsMoves) {
  make_sparse();
  while (lock_one()) {
  }
  do {
    ASSERT_FALSE(step_moves());
    release_one();
  } while (s_.store().moving_is_held());
  ASSERT_TRUE(lock_one());
  EXPECT_TRUE(s_.store().moving_is_held());
  ASSERT_FALSE(step_moves()) << "it lacks what one holds, at most";
  int calls = 0;
  s_.store().log().on_less_held([&] { ++calls; });
  ASSERT_GT(held_.size(), 3u);
  for (const TxId id : held_) {
    ASSERT_TRUE(finish(two_phase().prepare(id, {}, {})));
    EXPECT_TRUE(s_.store().moving_is_held());
  }
  EXPECT_EQ(calls, 0) << "room for a record that is used is no release";
}

TEST_F(HeldLog, ADecisionReleasesWhatTheRedoRecordHolds) {
  ASSERT_TRUE(lock_one());
  ASSERT_TRUE(prepare());
  const ShardLog& log = s_.store().log();
  const uint64_t prepared = log.held_bytes();
  int calls = 0;
  s_.store().log().on_less_held([&] { ++calls; });
  ASSERT_TRUE(commit());
  EXPECT_EQ(calls, 1);
  EXPECT_GT(log.held_bytes(), 0u) << "others may ask for the outcome";
  EXPECT_LT(log.held_bytes(), prepared);
  two_phase().forget(last_);
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(log.held_bytes(), 0u);
}

}  // namespace
}  // namespace pmstore::internal
