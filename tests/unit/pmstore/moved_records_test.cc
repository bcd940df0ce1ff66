// A server that moves records together when most of them were erased, and its clients meanwhile.
#include <deque>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "fabric/device.h"
#include "fabric/local/local_device.h"
#include "pmstore/check.h"
#include "tests/unit/pmstore/moves_amid_scans.h"
#include "tests/unit/pmstore/record_extents_fixture.h"

namespace pmstore::testing {
namespace {

// Opens devices on which what is posted takes a while.
class OpensLateBySeed final : public fabric::DeviceOpener {
 public:
  explicit OpensLateBySeed(uint64_t seed) : seed_(seed) {}
  Result<std::unique_ptr<fabric::Device>> open(fabric::Scheme, Executor& executor) override {
    return fabric::open_local_device(executor, {.late_effects_seed = seed_});
  }

 private:
  uint64_t seed_;
};

class MovedRecords : public RecordExtentsFixture,
                     public ::testing::WithParamInterface<LockDiscipline> {
 protected:
  // As the server waits for fewer erases, and more.
  static constexpr uint64_t kQuietNs = 2'000'000'000;

  void SetUp() override { RecordExtentsFixture::SetUp(GetParam()); }
  uint64_t moved() const {
    return nlohmann::json::parse(server_->stat_json()).at("frames").at("records_moved");
  }
  bool stays(int i) const { return i % one_of_ == 0; }
  void erase_most() {
    for (int i = 0; i < count_; ++i) {
      if (stays(i)) continue;
      ASSERT_TRUE(run(client_->erase(table_, key_of(i)))) << i;
    }
  }
  // Of the executor; it takes half a microsecond.
  void turn() {
    executor_.run_once();
    clock_.advance_to(executor_.now_ns() + 500);
  }
  void turn_until_records_move() {
    const uint64_t before = moved();
    for (int turns = 0; moved() == before; ++turns) {
      ASSERT_LT(turns, 10'000);
      if (!executor_.run_once()) clock_.advance_to(executor_.now_ns() + 1'000'000);
    }
  }
  void expect_the_rest(Client& client) {
    for (int i = 0; i < count_; ++i) {
      const auto got = run(client.get(table_, key_of(i)));
      if (stays(i)) {
        ASSERT_TRUE(got) << i << ": " << got.error().to_string();
        EXPECT_EQ(*got, value_of(i));
      } else {
        EXPECT_EQ(got.code(), ErrorCode::kNotFound) << i;
      }
    }
  }

  int one_of_ = 30;
};
class MovedRecordsOfCpu : public MovedRecords {};

TEST_P(MovedRecordsOfCpu, GatherAndTheirExtentsGoBack) {
  fill(6);
  erase_most();
  EXPECT_EQ(extents(), 6u);
  let_time_pass(kQuietNs);
  look_again();
  EXPECT_GT(moved(), 0u);
  EXPECT_LE(extents(), 2u);
  expect_the_rest(*client_);
  restart();
  EXPECT_TRUE(check_store(*pool_)->sound());
  const auto later = connect();
  ASSERT_NE(later, nullptr);
  expect_the_rest(*later);
  run(later->close());
}

TEST_P(MovedRecordsOfCpu, AreLeftAloneWhileOthersAreErased) {
  fill(6);
  for (int i = 0; i < count_; ++i) {
    if (!stays(i)) {
      ASSERT_TRUE(run(client_->erase(table_, key_of(i)))) << i;
    }
    if (i % 15 != 0) continue;
    let_time_pass(100'000'000);
    if (i >= count_ * 8 / 10) continue;
    ASSERT_EQ(moved(), 0u) << i;
  }
  let_time_pass(kQuietNs);
  look_again();
  EXPECT_GT(moved(), 0u);
  EXPECT_LE(extents(), 2u);
  expect_the_rest(*client_);
}

// Cached locations, buckets, lock words and records are READ one-sided while all of them change.
TEST_P(MovedRecordsOfCpu, AreFoundByReadersWhoseReadsTakeAWhile) {
  one_of_ = 10;
  uint64_t most_amid_reads = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    fill(5);
    OpensLateBySeed late(seed);
    client_options_.devices = &late;
    client_options_.misses = seed % 2 == 0 ? MissPath::kOneSided : MissPath::kRpc;
    const auto reader = connect();
    ASSERT_NE(reader, nullptr);
    for (int round = 0; round < 2; ++round) expect_there(*reader);
    erase_most();
    turn_until_records_move();
    for (uint64_t before = 0; before != moved();) {
      before = moved();
      std::deque<Task<Result<std::string>>> gets;
      std::deque<std::string> keys;
      for (int i = 0; i < count_; i += one_of_) {
        gets.push_back(reader->get(table_, keys.emplace_back(key_of(i))));
        gets.back().start();
        turn();
      }
      for (size_t i = 0; i < gets.size(); ++i) {
        while (!gets[i].done()) turn();
        const auto got = gets[i].take();
        ASSERT_TRUE(got) << "seed " << seed << ", " << keys[i] << ": " << got.error().to_string();
        ASSERT_EQ(*got, value_of(static_cast<int>(i) * one_of_)) << "seed " << seed;
      }
      most_amid_reads = std::max(most_amid_reads, moved() - before);
    }
    for (int i = 0; i < count_; i += one_of_) {
      ASSERT_TRUE(run(client_->erase(table_, key_of(i))));
    }
    run(reader->close());
    look_again();
    client_options_.devices = nullptr;
  }
  EXPECT_GT(most_amid_reads, 10u);
}

// A scan whose pages come every few seconds.
TEST_P(MovedRecordsOfCpu, WaitForAScanWhichSeesEachRecordOnce) {
  fill(6);
  erase_most();
  std::multiset<std::string> seen;
  uint64_t cursor = 0;
  do {
    const auto page = run(client_->scan(table_, cursor, 8192));
    ASSERT_TRUE(page) << page.error().to_string();
    for (const RecordRef record : page->records) seen.emplace(record.key);
    cursor = page->cursor;
    EXPECT_EQ(moved(), 0u);
    if (cursor != 0) let_time_pass(5'000'000'000);
  } while (cursor != 0);
  size_t there = 0;
  for (int i = 0; i < count_; ++i) {
    there += stays(i);
    EXPECT_EQ(seen.count(key_of(i)), stays(i) ? 1u : 0u) << i;
  }
  EXPECT_EQ(seen.size(), there);
  let_time_pass(15'000'000'000);
  EXPECT_GT(moved(), 0u);
  expect_the_rest(*client_);
}

TEST_P(MovedRecordsOfCpu, DoNotWaitForAScanForEver) {
  fill(6);
  erase_most();
  const auto first = run(client_->scan(table_, 0, 4096));
  ASSERT_TRUE(first);
  ASSERT_NE(first->cursor, 0u);
  const uint64_t begun_ns = executor_.now_ns();
  auto page = run(client_->scan(table_, first->cursor, 4096));
  for (; page; page = run(client_->scan(table_, first->cursor, 4096))) {
    ASSERT_LT(executor_.now_ns() - begun_ns, 100'000'000'000u);
    let_time_pass(1'000'000'000);
  }
  EXPECT_GT(executor_.now_ns() - begun_ns, 50'000'000'000u);
  EXPECT_GT(moved(), 0u);
  EXPECT_EQ(page.code(), ErrorCode::kTrimmed);
  EXPECT_NE(page.error().message.find("begin the scan again"), std::string::npos);
  EXPECT_EQ(run(client_->scan(table_, first->cursor, 4096)).code(), ErrorCode::kTrimmed);
  EXPECT_TRUE(run(client_->scan(table_, 0, 4096)));
}

TEST_P(MovedRecords, OnlyWhereTheServerAloneChangesLockWords) {
  fill(6);
  erase_most();
  let_time_pass(kQuietNs);
  look_again();
  EXPECT_EQ(moved() > 0, GetParam() == LockDiscipline::kCpu);
  expect_the_rest(*client_);
}

// A page of a count visits 16,384 slots.
TEST_F(MovesAmidScans, ACountBeginsAgainAndIsExact) {
  constexpr int kCount = 18'000;
  fill_and_erase(table_, kCount, 4, 10);
  wait_for_the_first_move();
  const uint64_t before = moved();
  const uint64_t begun_ns = executor_.now_ns();
  const auto usage = run(client_->table_usage(table_));
  ASSERT_TRUE(usage) << usage.error().to_string();
  EXPECT_GT(moved(), before);
  EXPECT_GE(executor_.now_ns() - begun_ns, kLeastPauseNs) << "it has begun again";
  EXPECT_EQ(usage->records, kCount / 10u);
  EXPECT_EQ(usage->value_bytes, kCount / 10u * 4);
}

INSTANTIATE_TEST_SUITE_P(Locks, MovedRecordsOfCpu, ::testing::Values(LockDiscipline::kCpu),
                         [](const auto&) { return "cpu"; });
INSTANTIATE_TEST_SUITE_P(Locks, MovedRecords,
                         ::testing::Values(LockDiscipline::kCpu, LockDiscipline::kRnic),
                         [](const auto& of) {
                           return of.param == LockDiscipline::kCpu ? "cpu" : "rnic";
                         });

}  // namespace
}  // namespace pmstore::testing
