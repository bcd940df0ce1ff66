// Slabs without records in frames that stay: they become free chunks, and what they leave goes.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "base/random.h"
#include "pmstore/check.h"
#include "tests/unit/pmstore/shard/store_fixture.h"

namespace pmstore::internal {
namespace {

constexpr int kRecords = 200;  // some 40 in a chunk

std::string idle_key(int i) { return "key" + std::to_string(i); }
std::string idle_value(int i) { return std::string(1400, static_cast<char>('a' + i % 26)); }

struct IdleSlabs : ::testing::Test {
  void SetUp() override {
    for (int i = 0; i < kRecords; ++i) ASSERT_TRUE(s.put(idle_key(i), idle_value(i)));
  }
  SlabArena& arena() { return s.store().arena(); }
  void erase(int from, int to) {
    for (int i = from; i < to; ++i) ASSERT_TRUE(s.erase(idle_key(i))) << i;
  }
  void give_back(uint32_t kept) {
    for (int step = 0; step < 1000; ++step) {
      const auto all = s.store().give_back_idle_slabs(1, kept);
      ASSERT_TRUE(all);
      if (*all) return;
    }
    FAIL() << "a round does not end";
  }
  // The ranges that are named, zeroed as a file system does it.
  std::vector<std::pair<uint64_t, uint64_t>> release() {
    std::vector<std::pair<uint64_t, uint64_t>> ranges;
    const auto note = [&](uint64_t offset, uint64_t bytes) {
      ranges.emplace_back(offset, bytes);
      std::memset(s.memory_at(offset), 0, bytes);
      return true;
    };
    while (!arena().take_leftovers(1, note)) {
    }
    return ranges;
  }
  void expect_there(int from, int to) {
    for (int i = from; i < to; ++i) {
      const auto got = s.get(idle_key(i));
      ASSERT_TRUE(got && got->found()) << i;
      EXPECT_EQ(got->value, idle_value(i));
    }
  }

  struct Stores : StoreInRegion {
    using StoreInRegion::StoreInRegion;
    std::byte* memory_at(uint64_t offset) { return pool().memory().at(offset); }
  } s{4 << 20};
};

TEST_F(IdleSlabs, BecomeFreeChunksButForThoseThatAreKept) {
  const uint64_t before = arena().free_chunks();
  erase(0, kRecords / 2);
  EXPECT_EQ(arena().free_chunks(), before) << "nothing else needs them";
  give_back(1);
  const uint64_t all_but_one = arena().free_chunks();
  EXPECT_GT(all_but_one, before);
  give_back(0);
  EXPECT_EQ(arena().free_chunks(), all_but_one + 1);
  expect_there(kRecords / 2, kRecords);
}

TEST_F(IdleSlabs, LeaveWholePagesBehindTheHeadersWhichAreNamedOnce) {
  EXPECT_TRUE(release().empty()) << "no chunk that was never used is named";
  const uint64_t before = arena().free_chunks();
  erase(0, kRecords / 2);
  EXPECT_TRUE(release().empty()) << "they are slabs still";
  give_back(0);
  const auto ranges = release();
  EXPECT_EQ(ranges.size(), arena().free_chunks() - before);
  for (const auto& [offset, bytes] : ranges) {
    EXPECT_EQ(offset % 4096, 0u);
    EXPECT_EQ(bytes, kChunkBytes - 4096);
  }
  EXPECT_TRUE(release().empty());
  expect_there(kRecords / 2, kRecords);
  EXPECT_TRUE(check_store(s.pool())->sound());
}

// A free run is looked for behind the last one: chunks are used again when the search is around.
TEST_F(IdleSlabs, AreNotNamedWhenTheyAreInUseAgain) {
  const auto chunk_of = [this](int i) { return s.get(idle_key(i))->reply.slot / kChunkBytes; };
  const uint64_t first = chunk_of(0);
  bool again = false;
  for (int round = 0; round < 40 && !again; ++round) {
    erase(0, kRecords);
    give_back(0);
    for (int i = 0; i < kRecords; ++i) ASSERT_TRUE(s.put(idle_key(i), idle_value(i)));
    for (int i = 0; i < kRecords; ++i) again |= chunk_of(i) == first;
  }
  ASSERT_TRUE(again);
  EXPECT_FALSE(release().empty());
  expect_there(0, kRecords);
}

TEST_F(IdleSlabs, AreNotNamedWhereADeviceHasPinnedThem) {
  erase(0, kRecords);
  give_back(0);
  arena().keep_blocks();
  EXPECT_TRUE(release().empty());
}

TEST_F(IdleSlabs, StayEmptyWhenAStartReplaysWhatTheLogHasOfThem) {
  std::map<uint64_t, uint64_t> versions;  // by slot
  for (int i = 0; i < kRecords / 2; ++i) {
    const GetReply found = s.get(idle_key(i))->reply;
    versions[found.slot] = found.version;
  }
  erase(0, kRecords / 2);
  give_back(0);
  EXPECT_FALSE(release().empty());
  s.reopen();
  EXPECT_EQ(s.store().recovery().live_records, static_cast<uint64_t>(kRecords - kRecords / 2));
  for (int i = 0; i < kRecords / 2; ++i) EXPECT_FALSE(s.get(idle_key(i))->found()) << i;
  expect_there(kRecords / 2, kRecords);
  for (int i = 0; i < kRecords / 2; ++i) ASSERT_TRUE(s.put(idle_key(i), idle_value(i)));
  int again = 0;  // slots that were used before
  for (int i = 0; i < kRecords / 2; ++i) {
    const GetReply found = s.get(idle_key(i))->reply;
    if (!versions.contains(found.slot)) continue;
    ++again;
    EXPECT_GT(found.version, versions[found.slot]);
  }
  EXPECT_GT(again, 0);
  s.reopen();
  expect_there(0, kRecords);
  EXPECT_TRUE(check_store(s.pool())->sound());
}

TEST_F(IdleSlabs, AreNamedAgainWhenTheFileSystemDidNotTakeThem) {
  erase(0, kRecords / 2);
  give_back(0);
  int asked = 0;
  const auto refuse = [&](uint64_t, uint64_t) { return ++asked == 0; };
  EXPECT_TRUE(arena().take_leftovers(8, refuse));
  EXPECT_EQ(asked, 1) << "the next look tries again";
  EXPECT_FALSE(release().empty());
}

// Their slots are still in the list of free ones, and no other slot is.
TEST_F(IdleSlabs, HandOutNoSlotOnceTheyAreLeaving) {
  erase(0, kRecords);
  const auto marked = s.store().give_back_idle_slabs(1, 0);
  ASSERT_TRUE(marked && !*marked) << "their slots are to be forgotten";
  ASSERT_TRUE(s.put(idle_key(0), idle_value(0)));
  give_back(0);
  release();
  expect_there(0, 1);
  s.reopen();
  expect_there(0, 1);
}

// Slots of slabs that are leaving are free until the slab is.
TEST_F(IdleSlabs, MayBeNeededBetweenTwoSteps) {
  Random random(5);
  std::array<bool, kRecords> there;
  there.fill(true);
  int rounds = 0;
  for (int step = 0; step < 6000; ++step) {
    // Mostly erases for a while, then mostly puts.
    const auto i = static_cast<int>(random.below(kRecords));
    const bool put = random.below(10) < (step / 500 % 2 == 0 ? 1u : 9u);
    if (put) {
      ASSERT_TRUE(s.put(idle_key(i), idle_value(i)));
    } else if (there[static_cast<size_t>(i)]) {
      erase(i, i + 1);
    }
    there[static_cast<size_t>(i)] = put;
    const auto over = s.store().give_back_idle_slabs(1, 0);
    ASSERT_TRUE(over);
    rounds += *over ? 1 : 0;
    if (random.below(3) == 0) release();
    if (random.below(200) == 0) {
      ASSERT_TRUE(s.store().close());
      ASSERT_EQ(s.store().no_checkpoint(), "");
      s.reopen();
      ASSERT_TRUE(s.store().recovery().from_checkpoint);
    }
    if (random.below(200) == 0) s.reopen();
    ASSERT_EQ(arena().used_slots(), s.store().live_records());
  }
  EXPECT_GT(rounds, 100);
  for (int i = 0; i < kRecords; ++i) {
    const auto got = s.get(idle_key(i));
    ASSERT_TRUE(got);
    ASSERT_EQ(got->found(), there[static_cast<size_t>(i)]) << i;
    if (got->found()) {
      EXPECT_EQ(got->value, idle_value(i));
    }
  }
  EXPECT_TRUE(check_store(s.pool())->sound());
}

TEST_F(IdleSlabs, AreNamedAfterAStartThatFindsThemFree) {
  erase(0, kRecords / 2);
  give_back(0);
  s.reopen();
  EXPECT_FALSE(release().empty());
  expect_there(kRecords / 2, kRecords);
}

}  // namespace
}  // namespace pmstore::internal
