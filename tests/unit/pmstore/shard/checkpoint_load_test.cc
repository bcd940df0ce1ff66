// What a start loads from a checkpoint, and from which media.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "pmstore/layout/checkpoint_layout.h"
#include "tests/unit/pmstore/shard/checkpoint_fixture.h"
#include "tests/unit/pmstore/shard/pool_on_a_file.h"

namespace pmstore::internal {
namespace {

// More slabs than one task loads, with versions of one and of several bytes.
TEST_F(CheckpointTest, GivesTheVersionsOfManySlabsOfSeveralSizes) {
  make_pool(8, 96 << 20);
  content_.clear();
  const std::string large(9000, 'l');
  for (int i = 0; i < 4500; ++i) {
    put(hash_, fmt::format("l{}", i), large);
    if (i % 3 == 0) put(hash_, fmt::format("m{}", i), std::string(3000, 'm'));
    put(hash_, fmt::format("s{}", i), "s");
  }
  for (int i = 0; i < 700; ++i) put(hash_, "s7", fmt::format("{}", i));
  for (int i = 0; i < 70'000; ++i) put(hash_, "m9", "short");
  ASSERT_TRUE(store_->close());
  size_t slabs = 0;
  store_->arena().for_each_slab([&](const SlabArena::Slab&) { ++slabs; });
  ASSERT_GT(slabs, 700u);
  const std::vector<uint64_t> before = words_of(*store_);
  restart(false);
  ASSERT_TRUE(store_->recovery().from_checkpoint) << store_->recovery().checkpoint_refused;
  EXPECT_TRUE(words_of(*store_) == before);
  EXPECT_EQ(difference(*store_), "");
}

// A medium that has an error in the checkpoint, where its bytes are read from a file.
TEST_F(CheckpointTest, OnAMediumWithAnErrorLeadsToAStartThatReadsAllRecords) {
  fill();
  ASSERT_TRUE(store_->close());
  const auto where = extent();
  ASSERT_TRUE(where);
  CheckpointHeader header;
  std::memcpy(&header, pool_->memory().at(where->offset), sizeof header);
  store_.reset();
  const uint64_t nowhere = where->bytes;
  for (const uint64_t byte : {uint64_t{0}, uint64_t{sizeof header}, header.directory_offset - 64,
                              header.directory_offset, nowhere}) {
    model::PageBytes copy(region_.bytes());
    const auto region = *persist::Pool::in_region(copy.bytes(), kDomain, false);
    PoolOnAFile pool(*region, where->offset + byte);
    const auto store = Store::open(pool);
    ASSERT_TRUE(store) << byte << ": " << store.error().message;
    EXPECT_EQ((*store)->recovery().from_checkpoint, byte == nowhere) << byte;
    EXPECT_EQ((*store)->recovery().checkpoint_refused.empty(), byte == nowhere) << byte;
    EXPECT_GT(pool.reads, 0u);
    EXPECT_EQ(difference(**store), "") << byte;
  }
}

TEST_F(CheckpointTest, IsNotUsedWhereTheLogHasARecordThatItsSlotHasNot) {
  fill();
  const auto got = get_from(*store_, hash_, "h38");
  ASSERT_TRUE(got && got->found());
  std::byte* const record = store_->arena().at(SlotOffset{got->reply.slot});
  ASSERT_TRUE(store_->close());
  record[20] ^= std::byte{1};
  restart(false);
  EXPECT_FALSE(store_->recovery().from_checkpoint);
  EXPECT_EQ(store_->recovery().checkpoint_refused, "the pool holds changes that it does not have");
  EXPECT_EQ(difference(*store_), "");
}

}  // namespace
}  // namespace pmstore::internal
