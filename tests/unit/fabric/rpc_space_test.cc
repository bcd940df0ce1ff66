#include "fabric/internal/rpc_space.h"

#include <gtest/gtest.h>

#include <map>

#include "base/random.h"

namespace pmstore::fabric::internal {
namespace {

constexpr uint32_t kBytes = 64 * 64;

RpcSpace space_of(uint32_t pieces = 128) {
  RpcSpace space;
  space.reset(kBytes, pieces);
  return space;
}

TEST(RpcSpace, ALoneCallerStaysAtTheStart) {
  RpcSpace space = space_of();
  for (int i = 0; i < 10; ++i) {
    const auto piece = space.allocate(100);
    EXPECT_EQ(piece.offset, 0u);
    space.free(piece.index);
  }
  EXPECT_EQ(space.used_bytes(), 0u);
}

TEST(RpcSpace, AnEmptyRingAlwaysHasRoomForHalfOfItself) {
  RpcSpace space = space_of();
  for (uint32_t first = 64; first <= kBytes / 2; first += 64) {
    const auto before = space.allocate(first);
    space.free(before.index);
    const auto piece = space.allocate(space.max_piece_bytes());
    ASSERT_NE(piece.index, RpcSpace::kNone) << first;
    space.free(piece.index);
  }
}

TEST(RpcSpace, TheOldestPieceHoldsUpTheRest) {
  RpcSpace space = space_of();
  const auto oldest = space.allocate(64);
  std::vector<RpcSpace::Piece> others;
  for (RpcSpace::Piece piece; (piece = space.allocate(64)).index != RpcSpace::kNone;) {
    others.push_back(piece);
  }
  EXPECT_EQ(others.size(), 63u);
  for (const auto& piece : others) space.free(piece.index);
  EXPECT_EQ(space.allocate(64).index, RpcSpace::kNone);
  space.free(oldest.index);
  EXPECT_EQ(space.used_bytes(), 0u);
  EXPECT_NE(space.allocate(64).index, RpcSpace::kNone);
}

TEST(RpcSpace, PiecesNeverOverlapWhateverTheOrderOfFrees) {
  base::Random random(11);
  RpcSpace space = space_of(32);
  struct Live {
    uint32_t index;
    uint32_t end;
  };
  std::map<uint32_t, Live> live;  // by offset
  uint64_t allocated = 0;
  for (int step = 0; step < 200'000; ++step) {
    if (random.below(2) == 0) {
      const auto bytes = static_cast<uint32_t>(1 + random.below(kBytes / 2));
      const uint32_t wanted = random.below(4) == 0 ? bytes : 1 + bytes % 300;
      const auto piece = space.allocate(wanted);
      if (piece.index == RpcSpace::kNone) continue;
      if (random.below(8) == 0) {
        space.undo(piece);
        continue;
      }
      ++allocated;
      const uint32_t end = piece.offset + wanted;
      auto after = live.lower_bound(piece.offset);
      ASSERT_TRUE(after == live.end() || after->first >= end);
      ASSERT_TRUE(after == live.begin() || std::prev(after)->second.end <= piece.offset);
      ASSERT_EQ(piece.offset % kRpcUnit, 0u);
      live[piece.offset] = {piece.index, end};
    } else if (!live.empty()) {
      auto victim = std::next(live.begin(), static_cast<long>(random.below(live.size())));
      space.free(victim->second.index);
      live.erase(victim);
      if (live.empty()) {
        ASSERT_EQ(space.used_bytes(), 0u);
      }
    }
  }
  EXPECT_GT(allocated, 10'000u);
}

TEST(RpcSpaceDeathTest, APieceIsFreedOnce) {
  RpcSpace space;
  space.reset(kMinRpcRingBytes, 16);
  const RpcSpace::Piece first = space.allocate(64);
  space.allocate(64);
  space.free(first.index);
  EXPECT_DEATH(space.free(first.index), "freed once");
  EXPECT_DEATH(space.undo(first), "only the last is undone");
}

}  // namespace
}  // namespace pmstore::fabric::internal
