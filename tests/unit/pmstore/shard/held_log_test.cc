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
  void hold_the_log() {
    for (int i = 0; lock(put("held" + std::to_string(i), "v")); ++i) {
      held_.push_back(last_);
      ASSERT_TRUE(prepare());
    }
  }
  void release_one() {
    ASSERT_FALSE(held_.empty());
    ASSERT_TRUE(finish(two_phase().abort(held_.back(), 0)));
    held_.pop_back();
  }
  std::vector<TxId> held_;
};

TEST_F(HeldLog, MovesAreHeldUntilEnoughOfItIsReleased) {
  int calls = 0;
  s_.store().log().on_less_reserved([&] { ++calls; });
  make_sparse();
  EXPECT_FALSE(s_.store().moving_is_held());
  hold_the_log();
  const size_t all = held_.size();
  ASSERT_GT(all, 5u);
  calls = 0;
  int in_vain = 0;
  int still_held = 0;
  for (; s_.store().moved_records() == 0; in_vain += s_.store().moved_records() == 0) {
    ASSERT_LE(in_vain, 6) << "each has lacked less than half of what the one before has";
    ASSERT_TRUE(*s_.store().move_some_records());
    for (; s_.store().moving_is_held(); ++still_held) release_one();
  }
  EXPECT_GT(still_held, in_vain) << "one was not enough";
  EXPECT_EQ(calls, static_cast<int>(all - held_.size()));
  EXPECT_FALSE(held_.empty()) << "not all was needed";
  while (*s_.store().move_some_records()) {
  }
  for (int i = 0; i < kRecords; i += 3) EXPECT_EQ(s_.get(key_of(i))->value, large(i)) << i;
}

}  // namespace
}  // namespace pmstore::internal
