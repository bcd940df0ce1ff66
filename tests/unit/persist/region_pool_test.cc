#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/checksum.h"
#include "persist/internal/catalog.h"
#include "persist/pool.h"
#include "persist/pool_layout.h"
#include "tests/unit/persist/recorder.h"

namespace pmstore::persist {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr size_t kRegionBytes = 1 << 20;

class RegionPool : public testing::Test {
 protected:
  RegionPool() : storage_(std::aligned_alloc(4096, kRegionBytes)) {
    std::memset(storage_, 0, kRegionBytes);
    region_ = {static_cast<std::byte*>(storage_), kRegionBytes};
  }
  ~RegionPool() override { std::free(storage_); }

  std::unique_ptr<Pool> make(bool format) {
    auto pool = Pool::in_region(region_, Domain::kCpuCache, format);
    EXPECT_TRUE(pool) << pool.error().to_string();
    return std::move(*pool);
  }

  void* storage_;
  std::span<std::byte> region_;
};

// The process that wrote it may have died in the middle: crash_explorer's scenario `pool` finds the
// states in which a catalog that was only in the caches had been relied on.
TEST_F(RegionPool, WhatOpeningFindsIsDurableBeforeItIsReliedOn) {
  make(true);
  Memory elsewhere(region_, {.domain = Domain::kCpuCache});
  Recorder recorder(elsewhere);
  ASSERT_TRUE(Pool::in_region(region_, Domain::kCpuCache, false, 256, &recorder));
  EXPECT_THAT(recorder.take(), ElementsAre("flush 0+2304", "drain"));
}

TEST_F(RegionPool, KeepsTheRulesThatItWasMadeWith) {
  const PaddingRules rules{.xp_line = false, .one_sided_line = true, .two_sided_line = false};
  ASSERT_TRUE(Pool::in_region(region_, Domain::kCpuCache, true, 256, nullptr, rules));
  // What opening is told does not count.
  const auto pool = Pool::in_region(region_, Domain::kCpuCache, false, 256, nullptr, {});
  ASSERT_TRUE(pool);
  EXPECT_EQ((*pool)->info().padding, rules);
  std::memset(storage_, 0, kRegionBytes);
  EXPECT_EQ(make(true)->info().padding, PaddingRules{});
}

// Of a later version: to write on under other rules would be to ignore them.
TEST_F(RegionPool, RulesThatAreNotKnownAreRefused) {
  make(true);
  PoolHeader header;
  std::memcpy(&header, region_.data(), sizeof header);
  EXPECT_EQ(header.padding_off, kExtentsComeBack);
  header.padding_off |= kExtentsComeBack * 2;
  header.crc = 0;
  header.crc = base::crc32c(std::as_bytes(std::span(&header, 1)));
  std::memcpy(region_.data(), &header, sizeof header);
  const auto pool = Pool::in_region(region_, Domain::kCpuCache, false);
  EXPECT_EQ(pool.code(), ErrorCode::kVersionMismatch);
  EXPECT_THAT(pool.error().message, HasSubstr("rules"));
}

// So many steps of `step_bytes` until nothing is left.
int steps_ahead(Pool& pool, ExtentKind kind, uint64_t bytes, uint64_t step_bytes) {
  int steps = 1;
  while (pool.zero_ahead(kind, bytes, step_bytes).value()) ++steps;
  return steps;
}

// An extent of `bytes`, whose space is free again and has no zero.
Extent used_and_freed(Pool& pool, uint64_t bytes) {
  const Extent extent = pool.allocate_extent(ExtentKind::kRecords, bytes).value();
  std::memset(pool.memory().at(extent.offset), 7, extent.bytes);
  EXPECT_TRUE(pool.free_extent(extent));
  return extent;
}

bool is_zero(Pool& pool, const Extent& extent) {
  const std::byte* const at = pool.memory().at(extent.offset);
  return std::all_of(at, at + extent.bytes, [](std::byte each) { return each == std::byte{0}; });
}

TEST_F(RegionPool, SpaceIsZeroedAheadInDurableStepsAndNotOnceMore) {
  auto pool = make(true);
  const Extent before = used_and_freed(*pool, 64 << 10);
  Recorder recorder(pool->memory());
  ASSERT_TRUE(pool->zero_ahead(ExtentKind::kLog, 64 << 10, 16 << 10).value());
  const auto step = recorder.take();
  EXPECT_EQ(step.front(), fmt::format("store {}+256", before.offset));
  EXPECT_EQ(*(step.end() - 2), fmt::format("flush {}+{}", before.offset, 16 << 10));
  EXPECT_EQ(step.back(), "drain");
  EXPECT_EQ(steps_ahead(*pool, ExtentKind::kLog, 64 << 10, 16 << 10), 3);
  EXPECT_EQ(pool->info().extents.size(), 0u) << "the space is free";
  recorder.take();
  EXPECT_FALSE(pool->zero_ahead(ExtentKind::kLog, 64 << 10, 16 << 10).value());
  EXPECT_TRUE(recorder.steps.empty());
  const Extent made = pool->allocate_extent(ExtentKind::kLog, 64 << 10).value();
  ASSERT_EQ(made.offset, before.offset);
  for (const std::string& each : recorder.take()) {
    EXPECT_EQ(each.find(fmt::format(" {}+", made.offset)), std::string::npos) << each;
  }
  EXPECT_TRUE(is_zero(*pool, made));
}

TEST_F(RegionPool, WhatWasNotZeroedAheadIsZeroedWhenTheExtentIsMade) {
  auto pool = make(true);
  const Extent before = used_and_freed(*pool, 64 << 10);
  ASSERT_TRUE(pool->zero_ahead(ExtentKind::kLog, 64 << 10, 16 << 10).value());
  const Extent made = pool->allocate_extent(ExtentKind::kLog, 64 << 10).value();
  ASSERT_EQ(made.offset, before.offset);
  EXPECT_TRUE(is_zero(*pool, made));
}

TEST_F(RegionPool, SpaceThatSomebodyHasUsedMeanwhileIsZeroedAgain) {
  auto pool = make(true);
  const Extent before = used_and_freed(*pool, 64 << 10);
  EXPECT_EQ(steps_ahead(*pool, ExtentKind::kLog, 64 << 10, 16 << 10), 4);
  const auto none = [](const Extent&) { return Status(); };
  const Extent records = pool->allocate_unzeroed(ExtentKind::kRecords, 32 << 10, none).value();
  ASSERT_EQ(records.offset, before.offset);
  std::memset(pool->memory().at(records.offset), 9, records.bytes);
  ASSERT_TRUE(pool->free_extent(records));
  EXPECT_EQ(steps_ahead(*pool, ExtentKind::kLog, 64 << 10, 16 << 10), 2);
  EXPECT_TRUE(is_zero(*pool, pool->allocate_extent(ExtentKind::kLog, 64 << 10).value()));
}

TEST_F(RegionPool, NothingIsZeroedAheadOfAnExtentThatIsRefused) {
  auto pool = make(true);
  used_and_freed(*pool, 64 << 10);
  Recorder recorder(pool->memory());
  const uint64_t largest = pool->largest_free_extent();
  EXPECT_FALSE(pool->zero_ahead(ExtentKind::kLog, largest + 256, 16 << 10).value());
  EXPECT_FALSE(pool->zero_ahead(ExtentKind::kLog, 0, 16 << 10).value());
  SpaceRules rules;
  rules.of(ExtentKind::kRecords).reserve_bytes = largest;
  pool->set_space_rules(rules);
  EXPECT_FALSE(pool->zero_ahead(ExtentKind::kLog, 64 << 10, 16 << 10).value());
  EXPECT_TRUE(recorder.steps.empty());
}

// Programs of that release would find it damaged, and they do open it.
TEST_F(RegionPool, NothingIsFreedInAPoolOfAnEarlierRelease) {
  make(true);
  PoolHeader header;
  std::memcpy(&header, region_.data(), sizeof header);
  header.padding_off &= ~kExtentsComeBack;
  header.crc = 0;
  header.crc = base::crc32c(std::as_bytes(std::span(&header, 1)));
  std::memcpy(region_.data(), &header, sizeof header);
  const auto pool = make(false);
  const auto extent = pool->allocate_extent(ExtentKind::kRings, 4096);
  ASSERT_TRUE(extent);
  EXPECT_EQ(pool->free_extent(*extent).code(), ErrorCode::kUnsupported);
  EXPECT_EQ(make(false)->info().extents.size(), 1u);
}

TEST_F(RegionPool, KeepsExtentsAndRootOverReopening) {
  Extent records{};
  {
    auto pool = make(true);
    ASSERT_EQ(pool->root().size(), kRootBytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(pool->root().data()) % 256, 0u);
    records = pool->allocate_extent(ExtentKind::kRecords, 1000).value();
    EXPECT_EQ(records.bytes, 1024u);
    EXPECT_EQ(records.offset % 256, 0u);
    ASSERT_TRUE(pool->allocate_extent(ExtentKind::kRings, 4096));
    pool->memory().write(pool->root().data(), "catalog", 8);
  }
  auto pool = make(false);
  const auto& extents = pool->info().extents;
  ASSERT_EQ(extents.size(), 2u);
  EXPECT_EQ(extents[0].kind, ExtentKind::kRecords);
  EXPECT_EQ(extents[0].offset, records.offset);
  EXPECT_EQ(extents[1].kind, ExtentKind::kRings);
  EXPECT_GE(extents[1].offset, records.offset + records.bytes);
  EXPECT_STREQ(reinterpret_cast<const char*>(pool->root().data()), "catalog");
  EXPECT_EQ(pool->info().medium, "region");
}

TEST_F(RegionPool, TheLargestFreeExtentCanBeAllocatedAndNotMore) {
  auto pool = make(true);
  const uint64_t largest = pool->largest_free_extent();
  const auto refused = pool->allocate_extent(ExtentKind::kLog, largest + 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.code(), ErrorCode::kFull);
  EXPECT_THAT(refused.error().message, HasSubstr(std::to_string(largest)));
  ASSERT_TRUE(pool->allocate_extent(ExtentKind::kLog, largest));
  EXPECT_EQ(pool->largest_free_extent(), 0u);
  EXPECT_EQ(pool->allocate_extent(ExtentKind::kLog, 1).code(), ErrorCode::kFull);
}

TEST_F(RegionPool, RefusesExtentsWithoutKindOrSizeAndATableThatIsFull) {
  auto pool = make(true);
  EXPECT_EQ(pool->allocate_extent(ExtentKind::kUnused, 256).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(pool->allocate_extent(static_cast<ExtentKind>(7), 256).code(),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(pool->allocate_extent(ExtentKind::kLog, 0).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(pool->allocate_extent(ExtentKind::kLog, UINT64_MAX).code(),
            ErrorCode::kInvalidArgument);
  for (size_t i = 0; i < kMaxExtents; ++i)
    ASSERT_TRUE(pool->allocate_extent(ExtentKind::kLog, 256));
  const auto full = pool->allocate_extent(ExtentKind::kLog, 256);
  EXPECT_EQ(full.code(), ErrorCode::kFull);
  EXPECT_THAT(full.error().message, HasSubstr("64 extents"));
}

TEST_F(RegionPool, AnEntryIsDurableBeforeTheTagThatMakesItCount) {
  auto pool = make(true);
  Recorder recorder(pool->memory());
  ASSERT_TRUE(pool->allocate_extent(ExtentKind::kLog, 256));
  EXPECT_THAT(recorder.take(), ElementsAre("store 264+24", "flush 256+32", "drain", "store 256+8",
                                           "flush 256+32", "drain"));
}

TEST_F(RegionPool, AnEntryWithoutItsTagDoesNotExist) {
  auto pool = make(true);
  ASSERT_TRUE(pool->allocate_extent(ExtentKind::kLog, 256));
  const uint64_t offset = pool->allocate_extent(ExtentKind::kRecords, 512).value().offset;
  // The crash hits between the two drains of the second allocation.
  std::memset(region_.data() + internal::Catalog::entry_offset(0, 1), 0, 8);
  pool = make(false);
  EXPECT_EQ(pool->info().extents.size(), 1u);
  EXPECT_EQ(pool->allocate_extent(ExtentKind::kRings, 1024).value().offset, offset);
}

TEST_F(RegionPool, WhatIsFreedBecomesAnExtentOfAnyKind) {
  auto pool = make(true);
  const Extent first = pool->allocate_extent(ExtentKind::kRecords, 4096).value();
  ASSERT_TRUE(pool->allocate_extent(ExtentKind::kLog, 256));
  const uint64_t before = pool->largest_free_extent();
  std::memset(pool->memory().at(first.offset), 0x5a, first.bytes);
  ASSERT_TRUE(pool->free_extent(first));
  EXPECT_EQ(pool->info().extents.size(), 1u);
  pool = make(false);
  EXPECT_EQ(pool->info().extents.size(), 1u);
  EXPECT_EQ(pool->largest_free_extent(), before);
  const Extent second = pool->allocate_extent(ExtentKind::kRings, 1024).value();
  EXPECT_EQ(second.offset, first.offset);
  EXPECT_EQ(second.entry, first.entry);
  EXPECT_EQ(second.generation, first.generation + 1);
  const auto bytes = pool->memory().mapping().subspan(second.offset, second.bytes);
  EXPECT_EQ(std::count(bytes.begin(), bytes.end(), std::byte{0}), 1024);
  pool = make(false);
  ASSERT_EQ(pool->info().extents.size(), 2u);
  EXPECT_EQ(pool->info().extents[0].generation, second.generation);
  EXPECT_EQ(pool->info().extents[0].kind, ExtentKind::kRings);
}

// Else the memory would have an msync for each extent that there ever was.
TEST_F(RegionPool, WhatLiesWhereExtentsWereFreedIsOneRangeOfPages) {
  auto pool = std::move(*Pool::in_region(region_, Domain::kNone, true));
  for (int round = 0; round < 3; ++round) {
    std::vector<Extent> pieces;
    for (int i = 0; i < 8; ++i) {
      pieces.push_back(pool->allocate_extent(ExtentKind::kRings, 16384).value());
    }
    for (const Extent& piece : pieces) ASSERT_TRUE(pool->free_extent(piece));
    const Extent whole = pool->allocate_extent(ExtentKind::kRecords, 8 * 16384).value();
    ASSERT_EQ(whole.offset, pieces.front().offset);
    const uint64_t before = pool->memory().stats().msyncs;
    for (const Extent& piece : pieces)
      pool->memory().write(pool->memory().at(piece.offset), "x", 1);
    ASSERT_TRUE(pool->memory().drain());
    EXPECT_EQ(pool->memory().stats().msyncs - before, 1u) << round;
    ASSERT_TRUE(pool->free_extent(whole));
  }
}

TEST_F(RegionPool, AnEarlierExtentIsNotTakenForTheOneThatHasItsPlace) {
  auto pool = make(true);
  const Extent first = pool->allocate_extent(ExtentKind::kLog, 256).value();
  ASSERT_TRUE(pool->free_extent(first));
  ASSERT_TRUE(pool->allocate_extent(ExtentKind::kLog, 256));
  EXPECT_DEATH(static_cast<void>(pool->free_extent(first)), "not a later one");
}

TEST_F(RegionPool, FreeingIsOneStore) {
  auto pool = make(true);
  const Extent extent = pool->allocate_extent(ExtentKind::kLog, 256).value();
  Recorder recorder(pool->memory());
  ASSERT_TRUE(pool->free_extent(extent));
  EXPECT_THAT(recorder.take(), ElementsAre("store 256+8", "flush 256+32", "drain"));
}

TEST_F(RegionPool, AnExtentThatCannotBeFilledDoesNotExist) {
  auto pool = make(true);
  const auto fails = [&](const Extent& extent) {
    std::memset(pool->memory().at(extent.offset), 0x5a, extent.bytes);
    return Status(make_error(ErrorCode::kIo, "no"));
  };
  EXPECT_EQ(pool->allocate_filled(ExtentKind::kRings, 512, fails).code(), ErrorCode::kIo);
  EXPECT_TRUE(pool->info().extents.empty());
  const Extent next = pool->allocate_extent(ExtentKind::kRings, 512).value();
  EXPECT_EQ(*pool->memory().at(next.offset), std::byte{0});
}

TEST_F(RegionPool, AnEntryIsUsedUntilItsGenerationsAreWornOut) {
  auto pool = make(true);
  const Extent extent = pool->allocate_extent(ExtentKind::kLog, 256).value();
  ASSERT_TRUE(pool->free_extent(extent));
  Extent last = extent;
  last.generation = kLastGeneration - 1;
  const uint64_t tag = internal::Catalog::freed_tag(last);
  std::memcpy(region_.data() + internal::Catalog::entry_offset(0, 0), &tag, sizeof tag);
  pool = make(false);
  EXPECT_EQ(pool->allocate_extent(ExtentKind::kLog, 256).value().entry, 1u);
}

TEST_F(RegionPool, NothingButAPoolIsOpened) {
  const auto empty = Pool::in_region(region_, Domain::kNone, false);
  ASSERT_FALSE(empty);
  EXPECT_EQ(empty.code(), ErrorCode::kBadPool);
  EXPECT_EQ(Pool::in_region(region_.first(4096), Domain::kNone, true).code(),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(Pool::in_region(region_.subspan(8), Domain::kNone, true).code(),
            ErrorCode::kInvalidArgument);
}

TEST_F(RegionPool, OtherFormatVersionsAreRefusedByName) {
  make(true);
  PoolHeader header;
  std::memcpy(&header, region_.data(), sizeof header);
  header.format_version = 7;
  header.crc = 0;
  header.crc = base::crc32c(std::as_bytes(std::span(&header, 1)));
  std::memcpy(region_.data(), &header, sizeof header);
  const auto other = Pool::in_region(region_, Domain::kNone, false);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.code(), ErrorCode::kVersionMismatch);
  EXPECT_THAT(other.error().message, HasSubstr("pool format 7, this program reads 1"));
}

TEST_F(RegionPool, ARegionThatShrankIsTruncated) {
  make(true);
  const auto shrunk = Pool::in_region(region_.first(kRegionBytes / 2), Domain::kNone, false);
  ASSERT_FALSE(shrunk);
  EXPECT_EQ(shrunk.code(), ErrorCode::kBadPool);
  EXPECT_THAT(shrunk.error().message, HasSubstr("truncated"));
}

TEST_F(RegionPool, EveryFlippedBitOfHeaderAndUsedEntriesIsNoticed) {
  {
    auto pool = make(true);
    ASSERT_TRUE(pool->allocate_extent(ExtentKind::kRecords, 4096));
    ASSERT_TRUE(pool->allocate_extent(ExtentKind::kLog, 4096));
    const Extent freed = pool->allocate_extent(ExtentKind::kLog, 4096).value();
    ASSERT_TRUE(pool->free_extent(freed));
    // Of a freed entry the tag alone counts.
  }
  const size_t covered = internal::Catalog::entry_offset(0, 2) + sizeof(uint64_t);
  const std::vector<std::byte> intact(region_.begin(), region_.begin() + kPoolLayoutBytes);
  for (size_t bit = 0; bit < covered * 8; ++bit) {
    region_[bit / 8] ^= std::byte(1 << bit % 8);
    EXPECT_FALSE(Pool::in_region(region_, Domain::kNone, false)) << "bit " << bit;
    region_[bit / 8] ^= std::byte(1 << bit % 8);
  }
  EXPECT_TRUE(std::equal(intact.begin(), intact.end(), region_.begin()))
      << "looking changed something";
  EXPECT_TRUE(Pool::in_region(region_, Domain::kNone, false));
}

TEST_F(RegionPool, AnErasedEntryInTheMiddleIsDamageNotTheEnd) {
  auto pool = make(true);
  ASSERT_TRUE(pool->allocate_extent(ExtentKind::kRecords, 4096));
  ASSERT_TRUE(pool->allocate_extent(ExtentKind::kLog, 4096));
  std::memset(region_.data() + internal::Catalog::entry_offset(0, 0), 0, sizeof(ExtentEntry));
  const auto damaged = Pool::in_region(region_, Domain::kNone, false);
  ASSERT_FALSE(damaged);
  EXPECT_THAT(damaged.error().message, HasSubstr("damaged extent table (entry 1"));
}

}  // namespace
}  // namespace pmstore::persist
