// Records of which few fit in a slab, or in the log, and that move together.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "pmstore/check.h"
#include "tests/unit/pmstore/shard/record_frames_fixture.h"
#include "tests/unit/pmstore/shard/store_fixture.h"

namespace pmstore::internal {
namespace {

using namespace small_frames;

// Slots of 16 KiB, three in a slab; those of 8 KiB begin at the same offsets.
struct LargeRecordsMove : ::testing::Test {
  static std::string large(int i) { return std::string(16'000, static_cast<char>('a' + i % 26)); }
  void fill(int slabs) {
    for (int i = 0; i < 3 * slabs; ++i) ASSERT_TRUE(s.put(key_of(i), large(i)));
  }
  uint64_t slab_of(int i) { return s.get(key_of(i))->reply.slot / kChunkBytes; }
  size_t slabs() {
    size_t count = 0;
    auto slab = s.store().arena().slab_from(0);
    for (; slab; ++count) slab = s.store().arena().slab_from(slab->first_chunk + 1);
    return count;
  }

  StoreInRegion s{24 << 20, in_frames(4 << 20, 1 << 20)};
};

TEST_F(LargeRecordsMove, ASlabThatIsGivenBackBetweenTwoStepsIsEmptiedNoMore) {
  fill(60);
  // The last slab keeps two records, the others one.
  const uint64_t last = slab_of(179);
  for (int i = 0; i < 180; ++i) {
    const bool stays = slab_of(i) == last ? i != 179 : i % 3 == 0;
    if (!stays) {
      ASSERT_TRUE(s.erase(key_of(i)));
    }
  }
  ASSERT_TRUE(s.store().arena().looks_sparse());
  ASSERT_TRUE(*s.store().move_some_records(1));
  ASSERT_TRUE(*s.store().move_some_records(1));
  ASSERT_EQ(s.store().moved_records(), 2u) << "and the third slot was not looked at";
  // The slab is given back for another size class, whose fifth slot begins where the third one did.
  const uint64_t third = last * kChunkBytes + kSlabHeaderBytes + 2 * 16384;
  uint64_t slot = 0;
  for (int i = 1000; slot != third; ++i) {
    ASSERT_LT(i, 1100);
    ASSERT_TRUE(s.put(key_of(i), std::string(8'000, 'e')));
    slot = s.get(key_of(i))->reply.slot;
  }
  ASSERT_TRUE(s.store().arena().is_emptying());
  while (*s.store().move_some_records()) {
  }
  EXPECT_TRUE(check_store(s.pool())->sound());
}

TEST_F(LargeRecordsMove, AStepFreesAsFewSlabsAsItTakes) {
  // A frame of another size class in front of them, which is erased again.
  int others = 0;
  for (; extents(s) < 2; ++others) {
    ASSERT_TRUE(s.put("other" + std::to_string(others), std::string(8'000, 'o')));
  }
  int count = 0;
  for (; extents(s) < 3; ++count) ASSERT_TRUE(s.put(key_of(count), large(count)));
  for (const int end = count + 60; count < end; ++count) {
    ASSERT_TRUE(s.put(key_of(count), large(count)));
  }
  for (int i = 0; i < others; ++i) ASSERT_TRUE(s.erase("other" + std::to_string(i)));
  ASSERT_TRUE(s.store().arena().looks_sparse());
  size_t most_at_a_time = 0;
  for (size_t before = slabs(); *s.store().move_some_records(1);) {
    const size_t after = slabs();
    most_at_a_time = std::max(most_at_a_time, before - std::min(before, after));
    before = after;
  }
  EXPECT_GT(s.store().moved_records(), 50u);
  EXPECT_LE(most_at_a_time, 1u);
}

TEST_F(LargeRecordsMove, ARunOverTheEndOfAFrameTakesTheFreeSlotsOfEachSlabThatItReplaces) {
  constexpr uint64_t kFrame = 2 << 20;
  FormatOptions format = in_frames(kFrame, 1 << 20);
  format.record_bytes = kFrame;
  StoreInRegion two{24 << 20, format};
  std::map<std::string, std::string> there;
  const auto put = [&](const std::string& key, size_t bytes) {
    there[key] = std::string(bytes, static_cast<char>('a' + there.size() % 26));
    ASSERT_TRUE(two.put(key, there[key])) << key;
  };
  // What was made with the pool has two frames, and a slab in each chunk of them.
  int others = 0;
  for (; extents(two) < 2; ++others) put("other" + std::to_string(others), 16'000);
  ASSERT_GT(two.store().arena().first_records().size(), kFrame + 3 * kChunkBytes);
  ASSERT_NE(kFrame / kChunkBytes % 3, 0u) << "a run of three chunks is in both frames";
  // Slabs of three chunks, more than one of the frames has room for.
  for (int i = 0; i < 15; ++i) put("large" + std::to_string(i), 120'000);
  for (int i = 0; i < others; ++i) {
    ASSERT_TRUE(two.erase("other" + std::to_string(i)));
    there.erase("other" + std::to_string(i));
  }
  ASSERT_TRUE(two.store().arena().looks_sparse());
  while (*two.store().move_some_records(1)) {
  }
  std::map<uint64_t, int> in_frame;
  for (const auto& [key, value] : there) ++in_frame[two.get(key)->reply.slot / kFrame];
  ASSERT_GT(in_frame[0], 10) << "they have moved";
  ASSERT_GT(in_frame[1], 0);
  for (int i = 0; i < others; ++i) put("again" + std::to_string(i), 16'000);
  for (const auto& [key, value] : there) EXPECT_EQ(two.get(key)->value, value) << key;
  const auto checked = check_store(two.pool());
  ASSERT_TRUE(checked);
  EXPECT_TRUE(checked->sound());
  for (const auto& [key, value] : there) ASSERT_TRUE(two.erase(key)) << key;
  EXPECT_EQ(two.store().arena().used_slots(), 0u);
}

TEST_F(LargeRecordsMove, WhatTheLogDoesNotTakeStaysAndTheOthersMove) {
  constexpr uint64_t kFrame = 4 << 20;
  StoreInRegion small{24 << 20, in_frames(kFrame, 64 << 10)};
  // A put of a new key that just fits; a move writes a tombstone, too.
  size_t bytes = small.store().max_redo_bytes();
  while (!small.put("first", std::string(bytes, 'l'))) --bytes;
  ASSERT_GT(bytes, 16'000u);
  std::map<std::string, size_t> there{{"first", bytes}};
  int in_last = 0;
  for (int i = 0; in_last < 100; ++i) {
    if (extents(small) == 4) ++in_last;
    const size_t size = i % 10 == 0 ? bytes - 3 : 8'000;
    ASSERT_TRUE(small.put("key" + std::to_string(1000 + i), std::string(size, 's'))) << i;
    there["key" + std::to_string(1000 + i)] = size;
  }
  std::map<std::string, uint64_t> before;
  for (const auto& [key, size] : there) before[key] = small.get(key)->reply.slot;
  for (const auto& [key, slot] : before) {
    if (slot >= 2 * kFrame) continue;
    ASSERT_TRUE(small.erase(key));
    there.erase(key);
  }
  give_back(small);
  ASSERT_TRUE(small.store().arena().looks_sparse());
  int steps = 0;
  while (*small.store().move_some_records()) ASSERT_LT(++steps, 10'000);
  int stayed = 0;
  for (const auto& [key, size] : there) {
    const auto got = small.get(key);
    EXPECT_EQ(got->value, std::string(size, 's'));
    if (size > 8'000) {
      EXPECT_EQ(got->reply.slot, before[key]);
      if (before[key] >= 3 * kFrame) ++stayed;
    } else {
      EXPECT_LT(got->reply.slot, 3 * kFrame) << key;
    }
  }
  EXPECT_GT(stayed, 1);
  EXPECT_TRUE(check_store(small.pool())->sound());
}

}  // namespace
}  // namespace pmstore::internal
