// Frames of records that become empty before there is room elsewhere.
#include <map>
#include <vector>

#include "tests/unit/pmstore/shard/record_frames_fixture.h"

namespace pmstore::internal {
namespace {

using namespace small_frames;

constexpr uint64_t kLargeFrame = 1 << 20;

TEST(EmptyFrames, AnEmptyOneIsToldOfWhenTheRoomElsewhereComesLater) {
  StoreInRegion s(2 << 20, in_frames());
  const int last = fill(s, 2) - 1;  // alone in the second one
  SlabArena& arena = s.store().arena();
  uint64_t before = arena.changes();
  ASSERT_TRUE(s.erase(key_of(last)));
  EXPECT_GT(arena.changes(), before);
  int erased = 0;
  for (; !arena.empty_frame(0); ++erased) {
    ASSERT_LT(erased, last);
    before = arena.changes();
    ASSERT_TRUE(s.erase(key_of(erased)));
    EXPECT_EQ(arena.changes() > before, arena.empty_frame(0).has_value()) << erased;
  }
  EXPECT_LT(erased, last - 1);
}

TEST(EmptyFrames, AnEmptyOneIsToldOfWhenALargeEnoughRunElsewhereComesLater) {
  StoreInRegion s(12 << 20, in_frames(kLargeFrame, 1 << 20));
  int large = 0;
  while (extents(s) < 2) ASSERT_TRUE(s.put(key_of(large++), std::string(300 << 10, 'l')));
  erase(s, 0, large);
  std::map<uint64_t, std::string> by_slot;
  for (int i = 0; extents(s) < 3; ++i) {
    const std::string key = "small" + std::to_string(i);
    ASSERT_TRUE(s.put(key, std::string(70 << 10, 's')));
    by_slot[s.get(key)->reply.slot] = key;
  }
  std::vector<std::string> later;  // each between two that are erased first
  int in_first = 0;
  for (const auto& [slot, key] : by_slot) {
    if (slot < kLargeFrame && in_first++ % 2 == 1) {
      later.push_back(key);
    } else {
      ASSERT_TRUE(s.erase(key));
    }
  }
  give_back(s);
  ASSERT_EQ(extents(s), 2u);
  SlabArena& arena = s.store().arena();
  while (!arena.empty_frame(0)) {
    ASSERT_FALSE(later.empty());
    const uint64_t before = arena.changes();
    ASSERT_TRUE(s.erase(later.back()));
    later.pop_back();
    EXPECT_EQ(arena.changes() > before, arena.empty_frame(0).has_value());
  }
}

TEST(EmptyFrames, AnEmptyOneIsToldOfWhenEnoughRoomElsewhereComesInSmallPieces) {
  StoreInRegion s(12 << 20, in_frames(kLargeFrame, 1 << 20));
  ASSERT_TRUE(s.put("large", std::string(300 << 10, 'l')));
  int last = 0;  // alone in the second one
  for (; extents(s) < 2; ++last) ASSERT_TRUE(s.put(key_of(last), std::string(70 << 10, 's')));
  --last;
  ASSERT_TRUE(s.erase("large"));
  ASSERT_TRUE(s.erase(key_of(last)));
  SlabArena& arena = s.store().arena();
  ASSERT_FALSE(arena.empty_frame(0)) << "less than half a frame";
  // Each between two that stay, and smaller than the run that is free already.
  for (int i = 1; !arena.empty_frame(0); i += 2) {
    ASSERT_LT(i + 1, last);
    const uint64_t before = arena.changes();
    ASSERT_TRUE(s.erase(key_of(i)));
    EXPECT_EQ(arena.changes() > before, arena.empty_frame(0).has_value()) << i;
  }
}

TEST(EmptyFrames, ARecordForWhichThereIsNoRoomHoldsNoneBack) {
  StoreInRegion s(2 << 20, in_frames());
  const int count = fill(s, 3);
  ASSERT_EQ(s.put("large", std::string(300 << 10, 'l')).code(), ErrorCode::kFull);
  erase(s, 0, count);
  give_back(s);
  EXPECT_EQ(extents(s), 1u);
}

}  // namespace
}  // namespace pmstore::internal
