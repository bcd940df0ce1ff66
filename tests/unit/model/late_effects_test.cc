// Late effects of the modelled RNIC: what may happen happens for some seed, what must not for none.
#include <gtest/gtest.h>

#include <set>

#include "tests/unit/model/model_pair.h"

namespace pmstore::model {
namespace {

constexpr uint64_t kSeeds = 60;

Topology late(uint64_t seed) {
  Topology topology;
  topology.late_effects_seed = seed;
  return topology;
}

TEST(ModelLateEffects, AWriteMayLandLongAfterItsCompletionButNotAfterAReadBehindIt) {
  uint64_t late_writes = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    ModelPair pair(*named_parameters("optane-cx5"), late(seed));
    pair.fill(0, 64, 7);
    fabric::Batch write;
    write.write(pair.at(0, 64), pair.in_nvm(0));
    pair.execute(write);
    pair.pass(300);
    if (pair.nvm_byte(0) != 7) ++late_writes;
    fabric::Batch read;
    read.read(pair.at(64, 8), pair.in_dram(0));
    pair.execute(read);
    ASSERT_EQ(pair.nvm_byte(0), 7) << "seed " << seed;
  }
  EXPECT_GT(late_writes, kSeeds / 10);
  EXPECT_LT(late_writes, kSeeds);
}

// Beside a CPU that changes all lines in one turn.
TEST(ModelLateEffects, AReadIsTornBetweenLinesInAnyOrderAndNeverInsideOne) {
  std::set<std::vector<int>> seen;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    ModelPair pair(*named_parameters("optane-cx5"), late(seed));
    fabric::Batch read;
    read.read(pair.at(0, 256), pair.in_dram(0));
    fabric::Completion completion;
    ASSERT_TRUE(pair.connection->post(read, &completion));
    for (int turn = 1; !completion.done(); ++turn) {
      std::memset(pair.dram.bytes.data(), turn % 2, 256);
      pair.pass(100);
    }
    std::vector<int> lines;
    for (size_t line = 0; line < 256; line += 64) {
      lines.push_back(static_cast<int>(pair.local.bytes[line]));
      for (size_t at = line; at < line + 64; ++at) {
        ASSERT_EQ(static_cast<int>(pair.local.bytes[at]), lines.back()) << "seed " << seed;
      }
    }
    seen.insert(lines);
  }
  EXPECT_GE(seen.size(), 8u) << "of 16 ways to tear it";
}

TEST(ModelLateEffects, ReadsAndAtomicsOfAConnectionKeepTheirOrder) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    ModelPair pair(*named_parameters("optane-cx5"), late(seed));
    fabric::Batch batch;
    batch.fetch_add(pair.at(0, 8), pair.in_dram(0), 1)
        .read(pair.at(64, 256), pair.in_dram(0))
        .fetch_add(pair.at(8, 8), pair.in_dram(0), 1)
        .read(pair.at(512, 8), pair.in_dram(0));
    pair.execute(batch);
    EXPECT_EQ(static_cast<int>(pair.local.bytes[64]), 1) << "seed " << seed;
    EXPECT_EQ(static_cast<int>(pair.local.bytes[8]), 1) << "seed " << seed;
    EXPECT_EQ(static_cast<int>(pair.local.bytes[512]), 2) << "seed " << seed;
  }
}

}  // namespace
}  // namespace pmstore::model
