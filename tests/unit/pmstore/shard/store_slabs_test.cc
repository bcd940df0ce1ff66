// Where records lie.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tests/unit/pmstore/shard/store_fixture.h"

namespace pmstore::internal {
namespace {

TEST(StoreSlabs, NoRecordLiesInAnotherThatSpansChunks) {
  StoreInRegion s(2 << 20, {2, 256 << 10});
  const auto large = [](int i) { return std::string(100'000, static_cast<char>('a' + i % 26)); };
  int count = 0;
  for (; s.store().arena().free_chunks() > 4; ++count) {
    ASSERT_TRUE(s.put("large" + std::to_string(count), large(count)));
  }
  ASSERT_GT(count, 2);
  Status status;
  for (int i = 0; (status = s.put("small" + std::to_string(i), std::string(20'000, 's'))); ++i) {
  }
  ASSERT_EQ(status.code(), ErrorCode::kFull);
  for (int i = 0; i < count; ++i) {
    const auto got = s.get("large" + std::to_string(i));
    ASSERT_TRUE(got) << got.error().to_string();
    EXPECT_EQ(got->value, large(i));
  }
}

// Slots alone, without records: three of 20 KiB in a slab.
struct ClosedSlabs : ::testing::Test {
  static constexpr size_t kSlabs = 3000;
  static constexpr size_t kInSlab = 3;
  static constexpr uint8_t kClass = 15;
  static_assert(kSlotBytes[kClass] == 20480 && slots_per_slab(kClass) == kInSlab);

  SlabArena& arena() { return s.store().arena(); }
  void fill() {
    for (size_t i = 0; i < kSlabs * kInSlab; ++i) used.push_back(arena().allocate(kClass).value());
  }
  // Of each slab one slot stays.
  void free_two_thirds() {
    std::vector<SlotOffset> left;
    for (const SlotOffset slot : used) {
      if (raw(slot) % kChunkBytes == kSlabHeaderBytes) {
        left.push_back(slot);
      } else {
        arena().free_slot(slot);
      }
    }
    used = left;
  }
  // As RecordMover does it; the number of slabs that are closed.
  size_t move_together() {
    size_t closed = 0;
    EXPECT_TRUE(arena().begin_emptying());
    for (uint32_t before = arena().end_of_chunks(); before > 0;) {
      const auto slab = arena().next_to_empty(before);
      if (!slab) continue;
      ++closed;
      const auto from = std::find(used.begin(), used.end(), arena().slot_of(*slab, 0));
      EXPECT_NE(from, used.end());
      const SlotOffset to = arena().allocate_for_move(*from).value();
      arena().free_slot(std::exchange(*from, to));
      arena().end_emptying_slab();
    }
    arena().end_round();
    return closed;
  }

  StoreInRegion s{256 << 20};
  std::vector<SlotOffset> used;
};

TEST_F(ClosedSlabs, AreNotLookedAtByAllocations) {
  fill();
  ASSERT_EQ(arena().open_slabs(kClass), 0u);
  free_two_thirds();
  ASSERT_EQ(arena().open_slabs(kClass), kSlabs);
  const size_t closed = move_together();
  ASSERT_GT(closed, 1500u);
  // All that an allocation can meet has a slot for it.
  EXPECT_LE(arena().open_slabs(kClass), kSlabs - closed);
  const size_t free = (kSlabs - closed) * kInSlab - used.size();
  EXPECT_GE(free, arena().open_slabs(kClass));
  const uint64_t bytes = arena().bytes();
  const uint64_t chunks = arena().free_chunks();
  for (size_t i = 0; i < free; ++i) used.push_back(arena().allocate(kClass).value());
  EXPECT_EQ(arena().open_slabs(kClass), 0u);
  EXPECT_EQ(arena().free_chunks(), chunks) << "no slot of an open slab was lost";
  // Then the closed ones are given back, and are used again.
  while (used.size() < kSlabs * kInSlab) used.push_back(arena().allocate(kClass).value());
  EXPECT_EQ(arena().bytes(), bytes);
  std::sort(used.begin(), used.end());
  EXPECT_EQ(std::adjacent_find(used.begin(), used.end()), used.end());
  EXPECT_EQ(arena().used_slots(), used.size());
}

TEST_F(ClosedSlabs, SlotsOfOneThatIsOpenAgainAreAllThere) {
  fill();
  free_two_thirds();
  ASSERT_TRUE(arena().begin_emptying());
  uint32_t before = arena().end_of_chunks();
  ASSERT_TRUE(arena().next_to_empty(before));
  EXPECT_EQ(arena().open_slabs(kClass), kSlabs - 1);
  arena().end_emptying();
  EXPECT_EQ(arena().open_slabs(kClass), kSlabs);
  const uint64_t chunks = arena().free_chunks();
  while (used.size() < kSlabs * kInSlab) used.push_back(arena().allocate(kClass).value());
  EXPECT_EQ(arena().open_slabs(kClass), 0u);
  EXPECT_EQ(arena().free_chunks(), chunks);
}

}  // namespace
}  // namespace pmstore::internal
