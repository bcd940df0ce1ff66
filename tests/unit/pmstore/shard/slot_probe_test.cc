// The medium has lost a page of the pool file. Moves of records never touch that page.
#include "pmstore/shard/slot_probe.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "pmstore/check.h"
#include "tests/unit/pmstore/shard/pool_on_a_file.h"
#include "tests/unit/pmstore/shard/record_frames_fixture.h"
#include "tests/unit/pmstore/shard/store_fixture.h"

namespace pmstore::internal {
namespace {

using namespace small_frames;

// Slabs with 5 slots of three pages each.
struct SlotProbeTest : ::testing::Test {
  static constexpr size_t kPage = 4096;
  static constexpr size_t kInSlab = 5;
  // The page in which a slot begins has nothing of the record in the slot before.
  static std::string value(int i) { return std::string(8200, static_cast<char>('a' + i % 26)); }

  void SetUp() override { fill(1); }
  // The records in so many slots of each slab stay, the first ones.
  void fill(uint32_t stay) {
    int count = 0;
    for (; extents(s) < 4; ++count) ASSERT_TRUE(s.put(key_of(count), value(count)));
    for (int i = 0; i < count; ++i) {
      const SlotOffset slot = slot_of(i);
      const auto slab = s.store().arena().slab_at(slot);
      ASSERT_EQ(slots_per_slab(slab->size_class), kInSlab);
      if (raw(slot) < raw(s.store().arena().slot_of(*slab, stay))) {
        there.insert(i);
      } else {
        ASSERT_TRUE(s.erase(key_of(i)));
      }
    }
    ASSERT_GT(there.size(), 8u);
    last = *std::max_element(there.begin(), there.end(),
                             [&](int a, int b) { return raw(slot_of(a)) < raw(slot_of(b)); });
    // Until the log has no slot of these slabs, which would be flushed.
    for (int i = 0; i < 200; ++i) ASSERT_TRUE(s.put("other", std::string(1000, 'o')));
    ASSERT_TRUE(s.erase("other"));
    s.restart_on(file);
    ASSERT_TRUE(s.store().arena().looks_sparse());
  }
  void TearDown() override {
    mend();
    s.reopen();  // the store goes before `file`
  }

  SlotOffset slot_of(int i) { return SlotOffset{s.get(key_of(i))->reply.slot}; }
  // From here on an access to the page of this byte ends the process.
  void lose_page_of(const std::byte* byte) {
    const auto address = reinterpret_cast<uintptr_t>(byte) / kPage * kPage;
    lost = reinterpret_cast<std::byte*>(address);
    file.set_bad(s.pool().memory().offset_of(lost), kPage);
    ASSERT_EQ(mprotect(lost, kPage, PROT_NONE), 0);
  }
  void mend() {
    if (lost == nullptr) return;
    ASSERT_EQ(mprotect(lost, kPage, PROT_READ | PROT_WRITE), 0);
    file.set_bad(0, 0);
    lost = nullptr;
  }
  void move_all() {
    for (int steps = 0; *s.store().move_some_records(); ++steps) ASSERT_LT(steps, 1000);
  }
  void expect_all_there() {
    for (const int i : there) EXPECT_EQ(s.get(key_of(i))->value, value(i)) << i;
    EXPECT_EQ(s.store().live_records(), there.size());
  }

  StoreInRegion s{4 << 20, in_frames()};
  PoolOnAFile file{s.pool(), 0, 0};
  std::set<int> there;
  int last = 0;  // of them, in slot space
  std::byte* lost = nullptr;
};

TEST_F(SlotProbeTest, ALostPageOfAFreeSlotHoldsNoRecordOfItsSlabBack) {
  const SlotOffset before = slot_of(last);
  const SlabArena& arena = s.store().arena();
  lose_page_of(arena.at(arena.slot_of(*arena.slab_at(before), 1)));
  move_all();
  EXPECT_NE(raw(slot_of(last)), raw(before));
  EXPECT_GT(s.store().moved_records(), 1u);
  expect_all_there();
  mend();
  s.reopen();
  expect_all_there();
  EXPECT_TRUE(check_store(s.pool())->sound());
}

TEST_F(SlotProbeTest, ARecordOfWhichAPageIsLostStaysAndTheOthersAreMoved) {
  const SlotOffset before = slot_of(last);
  for (const size_t behind : {size_t{0}, kPage, 2 * kPage}) {
    lose_page_of(s.store().arena().at(before) + behind);
    s.store().arena().look_for_sparse();
    move_all();
    mend();
    EXPECT_EQ(raw(slot_of(last)), raw(before)) << behind;
    EXPECT_GT(s.store().moved_records(), 1u);
    expect_all_there();
  }
  s.store().arena().look_for_sparse();
  move_all();
  EXPECT_NE(raw(slot_of(last)), raw(before));
  expect_all_there();
}

// Of two records of a slab the second one begins in what was read with the first one.
struct SlotProbeAmidMoves : SlotProbeTest {
  void SetUp() override { fill(2); }
  // In the last slab that has two records.
  std::pair<int, int> neighbours() {
    const SlabArena& arena = s.store().arena();
    std::map<uint64_t, int> by_slot;
    for (const int i : there) by_slot[raw(slot_of(i))] = i;
    for (auto at = by_slot.rbegin(); at != by_slot.rend(); ++at) {
      const auto slab = arena.slab_at(SlotOffset{at->first});
      if (raw(arena.slot_of(*slab, 1)) != at->first) continue;
      return {by_slot.at(raw(arena.slot_of(*slab, 0))), at->second};
    }
    ADD_FAILURE() << "no slab has two";
    return {};
  }
};

TEST_F(SlotProbeAmidMoves, APageThatIsLostBetweenTwoStepsIsNotTouched) {
  const auto [first, second] = neighbours();
  const SlotOffset before = slot_of(second);
  const SlotOffset before_it = slot_of(first);
  for (int steps = 0; slot_of(first) == before_it; ++steps) {
    ASSERT_LT(steps, 1000);
    ASSERT_TRUE(*s.store().move_some_records(1));
  }
  ASSERT_EQ(raw(slot_of(second)), raw(before));
  const uint64_t moved = s.store().moved_records();
  lose_page_of(s.store().arena().at(before));
  move_all();
  mend();
  EXPECT_EQ(raw(slot_of(second)), raw(before));
  EXPECT_GT(s.store().moved_records(), moved);
  expect_all_there();
}

// Else moves of 64 slots would be as many calls of the system.
TEST_F(SlotProbeTest, SmallSlotsAreReadManyAtATime) {
  StoreInRegion small{1 << 20};
  for (int i = 0; i < 400; ++i) ASSERT_TRUE(small.put(key_of(i), "value"));
  PoolOnAFile pool(small.pool(), 0, 0);
  const SlabArena& arena = small.store().arena();
  const auto slab = *arena.slab_at(SlotOffset{small.get(key_of(0))->reply.slot});
  SlotProbe probe(pool, arena);
  uint64_t live = 0;
  for (uint32_t i = 0; i < slots_per_slab(slab.size_class); ++i) {
    live += probe.may_be_live(slab, arena.slot_of(slab, i)) ? 1 : 0;
  }
  EXPECT_EQ(live, 400u);
  EXPECT_EQ(pool.reads, (kChunkBytes + SlotProbe::kWindowBytes - 1) / SlotProbe::kWindowBytes);
  ASSERT_TRUE(small.erase(key_of(0)));
  const SlotOffset erased = arena.slot_of(slab, 0);
  EXPECT_TRUE(probe.may_be_live(slab, arena.slot_of(slab, 1)));
  probe.forget();
  EXPECT_FALSE(probe.may_be_live(slab, erased));
  SlotProbe of_memory(small.pool(), arena);
  EXPECT_TRUE(of_memory.may_be_live(slab, erased)) << "nothing was read";
}

}  // namespace
}  // namespace pmstore::internal
