// Moves of records that wait for the shard log, which undecided transactions hold.
#include <set>
#include <string>

#include "tests/unit/pmstore/two_phase_session_fixture.h"

namespace pmstore::testing {
namespace {

class HeldMoves : public TwoPhaseSession {
 protected:
  static constexpr uint64_t kSecondNs = 1000 * kMs;

  void SetUp() override {
    format_.frame_bytes = 256 << 10;
    format_.shard_log_bytes = 64 << 10;
    TwoPhaseSession::SetUp();
  }
  static std::string key_of(int i) { return "key" + std::to_string(i); }
  static std::string value_of(int i) {
    return std::string(20'000, static_cast<char>('a' + i % 26));
  }
  uint64_t moved() const {
    return json::parse(server_->stat_json()).at("frames").at("records_moved");
  }
  uint64_t log_used() const {
    return json::parse(server_->stat_json()).at("redo").at("log_used_bytes");
  }
  // Of each three records one stays, and a slab has slots for three of them.
  void make_sparse() {
    for (int i = 0; i < kRecords; ++i) {
      ASSERT_TRUE(run(client_->put(table_, key_of(i), value_of(i))));
    }
    for (int i = 0; i < kRecords; ++i) {
      if (i % 3 == 0) continue;
      ASSERT_TRUE(run(client_->erase(table_, key_of(i))));
    }
    ASSERT_EQ(moved(), 0u);
  }
  void hold_the_log() {
    while (lock("held" + std::to_string(held_), held_)) ASSERT_TRUE(prepare(held_++));
    ASSERT_GT(held_, 5u);
  }
  // The coordinator's session is over when it was silent for so long.
  void release(uint64_t most) {
    for (; most > 0 && held_ > 0; --most) ASSERT_TRUE(decide(other_, Decision::kAbort, --held_));
  }
  void expect_all_there() {
    for (int i = 0; i < kRecords; i += 3) {
      const auto got = run(client_->get(table_, key_of(i)));
      ASSERT_TRUE(got) << i << ": " << got.error().to_string();
      EXPECT_EQ(*got, value_of(i));
    }
  }

  static constexpr int kRecords = 90;
  uint64_t held_ = 0;
};

TEST_F(HeldMoves, GoOnWhenTheLogIsReleasedHoweverLongTheyHaveWaited) {
  make_sparse();
  hold_the_log();
  // Attempts without it would be 0.5, 1, 2 and so on up to 64 s apart.
  let_time_pass(150 * kSecondNs);
  ASSERT_EQ(moved(), 0u);
  release(UINT64_MAX);
  // Keys of what was aborted are gone, too: as long as that, erases are waited for.
  let_time_pass(2 * kSecondNs);
  EXPECT_GT(moved(), 0u);
  expect_all_there();
}

// A scan keeps moves waiting between the release and their attempt, which would truncate the log.
TEST_F(HeldMoves, DoNotTryWhereTheLogIsTakenAgain) {
  make_sparse();
  hold_the_log();
  let_time_pass(140 * kSecondNs);
  const auto page = run(client_->scan(table_, 0, 64 << 10));
  ASSERT_TRUE(page) << page.error().to_string();
  ASSERT_NE(page->cursor, 0u);
  release(UINT64_MAX);
  let_time_pass(2 * kSecondNs);
  coordinator_ = open_session(7);
  hold_the_log();
  ASSERT_TRUE(run(client_->put(table_, "alice", std::string(3000, 'a'))));
  const uint64_t used = log_used();
  let_time_pass(30 * kSecondNs);
  EXPECT_EQ(log_used(), used);
  let_time_pass(60 * kSecondNs);
  EXPECT_LT(log_used(), used) << "they try without a release, too";
  EXPECT_EQ(moved(), 0u);
  release(UINT64_MAX);
  let_time_pass(2 * kSecondNs);
  EXPECT_GT(moved(), 0u);
  expect_all_there();
}

TEST_F(HeldMoves, WaitWithoutALookAtTheLog) {
  make_sparse();
  hold_the_log();
  let_time_pass(150 * kSecondNs);
  ASSERT_EQ(moved(), 0u);
  const uint64_t before = clock_.jumps;
  let_time_pass(300 * kSecondNs);
  EXPECT_LE(clock_.jumps - before, 30u);
  EXPECT_EQ(moved(), 0u);
}

}  // namespace
}  // namespace pmstore::testing
