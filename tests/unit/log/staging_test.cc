#include "log/internal/staging.h"

#include <gtest/gtest.h>

#include <deque>

#include "base/random.h"

namespace pmstore::log::internal {
namespace {

TEST(Staging, ChunksNeverOverlapAndNeverCrossTheEnd) {
  constexpr uint64_t kCapacity = 4096;
  Staging staging(kCapacity);
  Random random(1);
  struct Held {
    Staging::Chunk chunk;
    uint64_t bytes;
  };
  std::deque<Held> held;
  uint64_t refused = 0;
  for (int i = 0; i < 20000; ++i) {
    const uint64_t bytes = 64 * (1 + random.below(random.below(10) == 0 ? 64 : 20));
    const auto chunk = staging.take(bytes);
    if (!chunk) {
      ++refused;
      ASSERT_FALSE(held.empty()) << "an empty ring takes every chunk";
      staging.give_back(held.front().chunk);
      held.pop_front();
      continue;
    }
    ASSERT_LE(chunk->offset + bytes, kCapacity);
    for (const Held& other : held) {
      ASSERT_TRUE(chunk->offset + bytes <= other.chunk.offset ||
                  other.chunk.offset + other.bytes <= chunk->offset);
    }
    held.push_back({*chunk, bytes});
  }
  EXPECT_GT(refused, 1000u);
}

TEST(Staging, WholeCapacityFitsWheneverItIsEmpty) {
  Staging staging(4096);
  const auto first = staging.take(64);
  EXPECT_FALSE(staging.take(4096));
  staging.give_back(*first);
  EXPECT_TRUE(staging.take(4096));
}

TEST(StagingDeath, GivingBackTwiceIsABug) {
  Staging staging(4096);
  const auto chunk = staging.take(64);
  staging.give_back(*chunk);
  EXPECT_DEATH(staging.give_back(*chunk), "in the order they were taken");
}

}  // namespace
}  // namespace pmstore::log::internal
