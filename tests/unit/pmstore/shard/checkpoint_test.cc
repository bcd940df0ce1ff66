// A start after an orderly stop takes over what the stop left, or reads all records.
#include "pmstore/shard/checkpoint.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "persist/pool_layout.h"
#include "pmstore/check.h"
#include "pmstore/layout/checkpoint_layout.h"
#include "tests/crash/crash_image.h"
#include "tests/unit/pmstore/shard/checkpoint_fixture.h"

namespace pmstore::internal {
namespace {

TEST_F(CheckpointTest, GivesWhatAStartThatReadsAllRecordsFinds) {
  fill();
  ASSERT_TRUE(store_->close());
  model::PageBytes copy(region_.bytes());
  restart(false);
  EXPECT_TRUE(store_->recovery().from_checkpoint);
  EXPECT_EQ(store_->recovery().live_records, content_.size());
  EXPECT_EQ(difference(*store_), "");
  // Another process, which does not find it.
  const auto pool = *persist::Pool::in_region(copy.bytes(), kDomain, false);
  forget_checkpoint(*pool);
  const auto scanned = Store::open(*pool);
  ASSERT_TRUE(scanned);
  EXPECT_FALSE((*scanned)->recovery().from_checkpoint);
  EXPECT_EQ((*scanned)->recovery().checkpoint_refused, "");
  EXPECT_EQ(difference(**scanned), "");
  EXPECT_EQ(state(*store_), state(**scanned));
}

TEST_F(CheckpointTest, IsNotReadWhereItIsToBeIgnored) {
  fill();
  ASSERT_TRUE(store_->close());
  store_.reset();
  pool_ = *persist::Pool::in_region(region_.bytes(), kDomain, false);
  ASSERT_TRUE(extent());
  auto opened = Store::open(*pool_, {.ignore_checkpoint = true});
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_FALSE((*opened)->recovery().from_checkpoint);
  EXPECT_EQ((*opened)->recovery().checkpoint_refused, "the start was told to ignore it");
  EXPECT_EQ(difference(**opened), "");
  EXPECT_FALSE(extent()) << "its space is freed";
}

TEST_F(CheckpointTest, HasWhatHeadersOfSlabsSay) {
  fill();
  ASSERT_TRUE(store_->close());
  model::PageBytes whole(region_.bytes());
  // Both copies of each header.
  uint64_t slabs = 0;
  store_->arena().for_each_slab([&](const SlabArena::Slab& slab) {
    const SlotOffset first = store_->arena().slot_of(slab, 0);
    const uint64_t header = store_->arena().pool_offset(first) - kSlabHeaderBytes;
    std::memset(region_.data() + header, 0x5a, kSlabHeaderBytes);
    ++slabs;
  });
  ASSERT_GT(slabs, 3u);
  restart(false);
  EXPECT_TRUE(store_->recovery().from_checkpoint);
  EXPECT_EQ(difference(*store_), "");
  // A start that reads the headers finds the same.
  const auto pool = *persist::Pool::in_region(whole.bytes(), kDomain, false);
  forget_checkpoint(*pool);
  const auto scanned = Store::open(*pool);
  ASSERT_TRUE(scanned);
  EXPECT_EQ(state(*store_), state(**scanned));
  const auto damaged = *persist::Pool::in_region(region_.bytes(), kDomain, false);
  EXPECT_EQ(Store::open(*damaged).code(), ErrorCode::kBadPool);
}

TEST_F(CheckpointTest, IsFollowedBySlabsThatAStartAfterACrashFinds) {
  fill();
  restart();
  ASSERT_TRUE(store_->recovery().from_checkpoint);
  for (int i = 0; i < 40; ++i) erase_if_there(hash_, fmt::format("h{}", i));
  // Slabs that are empty now become those of other sizes; other ones are claimed.
  for (int i = 0; i < 60; ++i) put(hash_, fmt::format("l{}", i), std::string(3000, 'l'));
  restart(false);
  EXPECT_FALSE(store_->recovery().from_checkpoint);
  EXPECT_EQ(difference(*store_), "");
}

TEST_F(CheckpointTest, OfAnEmptyStoreIsUsedToo) {
  restart();
  EXPECT_TRUE(store_->recovery().from_checkpoint);
  EXPECT_EQ(difference(*store_), "");
  put(hash_, "a", "1");
  EXPECT_EQ(difference(*store_), "");
}

TEST_F(CheckpointTest, IsFollowedByChangesAndByAnotherOne) {
  fill();
  for (int round = 0; round < 3; ++round) {
    restart();
    ASSERT_TRUE(store_->recovery().from_checkpoint) << round;
    EXPECT_FALSE(extent());  // its room is free again
    put(hash_, fmt::format("new{}", round), std::string(300, 'n'));
    put(ordered_, fmt::format("p{}", round), "n");
    put(hash_, "h1", fmt::format("changed {}", round));
    erase(ordered_, fmt::format("o{:05}", 7 + round * 5));
    ASSERT_EQ(difference(*store_), "") << round;
  }
  store_->index().ordered(ordered_)->check_all();
}

TEST_F(CheckpointTest, KeepsOverflowListsOfBuckets) {
  make_pool(8, 864 << 10);
  content_.clear();
  for (int i = 0; i < 5500; ++i) put(hash_, fmt::format("k{}", i), "v");
  ASSERT_GT(store_->index().overflowed(), 0u);
  const uint64_t overflowed = store_->index().overflowed();
  restart();
  ASSERT_TRUE(store_->recovery().from_checkpoint);
  EXPECT_EQ(store_->index().overflowed(), overflowed);
  EXPECT_EQ(difference(*store_), "");
  for (int i = 0; i < 5500; ++i) erase(hash_, fmt::format("k{}", i));
  EXPECT_EQ(store_->index().overflowed(), 0u);
}

TEST_F(CheckpointTest, KeepsIndexesOfManyNodes) {
  make_pool(24, 3 << 20);
  content_.clear();
  for (int i = 0; i < 3000; ++i) put(ordered_, fmt::format("{:040}", i * 1009 % 3000), "v");
  restart();
  ASSERT_TRUE(store_->recovery().from_checkpoint);
  store_->index().ordered(ordered_)->check_all();
  EXPECT_EQ(difference(*store_), "");
  for (int i = 0; i < 3000; ++i) erase(ordered_, fmt::format("{:040}", i));
  store_->index().ordered(ordered_)->check_all();
  EXPECT_EQ(difference(*store_), "");
}

TEST_F(CheckpointTest, IsReadToItsEndByACheckOfThePool) {
  make_pool(24, 3 << 20);
  content_.clear();
  for (int i = 0; i < 3000; ++i) put(ordered_, fmt::format("{:040}", i), "v");
  ASSERT_TRUE(store_->close());
  const auto where = extent();
  ASSERT_TRUE(where && where->bytes > kCheckpointBlockBytes);
  EXPECT_EQ(check_store(*pool_)->checkpoint, "current");
  std::byte* const at = pool_->memory().at(where->offset);
  CheckpointHeader header;
  std::memcpy(&header, at, sizeof header);
  for (CheckpointSection section; const uint32_t i : {0u, header.sections - 1}) {
    std::memcpy(&section, at + header.directory_offset + i * sizeof section, sizeof section);
    for (const uint64_t byte : {section.offset, section.offset + section.bytes - 1}) {
      at[byte] ^= std::byte{1};
      EXPECT_EQ(check_store(*pool_)->checkpoint, "not used: its content is damaged") << i;
      at[byte] ^= std::byte{1};
    }
  }
  EXPECT_EQ(check_store(*pool_)->checkpoint, "current");
}

TEST_F(CheckpointTest, IsOfNoUseAfterACrash) {
  fill();
  ASSERT_TRUE(store_->close());
  model::PageBytes at_the_stop(region_.bytes());
  const auto left = extent();
  ASSERT_TRUE(left);
  restart(false);
  put(hash_, "after", "1");
  // The process dies; and so does the one of a start that could not free the extent.
  restart(false);
  EXPECT_FALSE(store_->recovery().from_checkpoint);
  EXPECT_EQ(difference(*store_), "");
  // An extent with what the stop left is found in a pool that has changed since.
  const auto again = pool_->allocate_extent(persist::ExtentKind::kCheckpoint, left->bytes);
  ASSERT_TRUE(again);
  pool_->memory().write(pool_->memory().at(again->offset), at_the_stop.data() + left->offset,
                        left->bytes);
  restart(false);
  EXPECT_FALSE(store_->recovery().from_checkpoint);
  EXPECT_NE(store_->recovery().checkpoint_refused, "");
  EXPECT_FALSE(extent());
  EXPECT_EQ(difference(*store_), "");
}

TEST_F(CheckpointTest, OfAnEarlierStopIsOfNoUse) {
  fill();
  ASSERT_TRUE(store_->close());
  const auto first = extent();
  ASSERT_TRUE(first);
  std::vector<std::byte> content(pool_->memory().at(first->offset),
                                 pool_->memory().at(first->offset) + first->bytes);
  restart(false);
  put(hash_, "h1", "later");
  ASSERT_TRUE(store_->close());
  const auto second = extent();
  ASSERT_TRUE(second && second->bytes >= content.size());
  pool_->memory().write(pool_->memory().at(second->offset), content.data(), content.size());
  restart(false);
  EXPECT_FALSE(store_->recovery().from_checkpoint);
  EXPECT_EQ(store_->recovery().checkpoint_refused, "it is of another state of the pool");
  EXPECT_EQ(difference(*store_), "");
}

TEST_F(CheckpointTest, IsNotWrittenWhereThePoolHasNoRoom) {
  make_pool(0, persist::kPoolLayoutBytes + (32 << 10) + 10 * kChunkBytes);
  content_.clear();
  fill();
  ASSERT_TRUE(store_->close());
  EXPECT_NE(store_->no_checkpoint().find("the pool has room for"), std::string::npos);
  EXPECT_FALSE(extent());
  restart(false);
  EXPECT_FALSE(store_->recovery().from_checkpoint);
  EXPECT_EQ(store_->recovery().checkpoint_refused, "");
  EXPECT_EQ(difference(*store_), "");
}

TEST_F(CheckpointTest, IsNotWrittenWhileADroppedTableIsBeingFreed) {
  fill();
  ASSERT_TRUE(store_->drop_table(hash_));
  ASSERT_TRUE(store_->close());
  EXPECT_NE(store_->no_checkpoint(), "");
  restart(false);
  EXPECT_FALSE(store_->recovery().from_checkpoint);
  std::erase_if(content_, [&](const auto& each) { return each.first.first == hash_; });
  EXPECT_EQ(store_->live_records(), content_.size());
  EXPECT_EQ(store_->arena().used_slots(), content_.size());
  ASSERT_TRUE(store_->close());
  EXPECT_EQ(store_->no_checkpoint(), "");
}

TEST_F(CheckpointTest, KeepsSlotsThatWereGivenUp) {
  fill();
  const auto got = get_from(*store_, hash_, "h2");
  ASSERT_TRUE(got->found());
  std::byte* const at = store_->arena().at(SlotOffset{got->reply.slot});
  // Until the log has nothing of it any more.
  for (int i = 0; i < 400; ++i) put(hash_, "h1", fmt::format("{}", i));
  ASSERT_TRUE(store_->close());
  store_.reset();
  forget_checkpoint(*pool_);
  at[40] ^= std::byte{1};  // the medium has changed it
  content_.erase({hash_, "h2"});
  start();
  ASSERT_EQ(store_->recovery().damaged_records, 1u);
  const auto before = state(*store_);
  restart();
  ASSERT_TRUE(store_->recovery().from_checkpoint);
  EXPECT_EQ(store_->recovery().damaged_records, 1u);
  EXPECT_EQ(state(*store_), before);
  EXPECT_EQ(difference(*store_), "");
}

TEST_F(CheckpointTest, IsNotWrittenByAStoreThatHasSeenDamage) {
  fill();
  restart();
  const auto got = get_from(*store_, hash_, "h2");
  ASSERT_TRUE(got->found());
  store_->arena().at(SlotOffset{got->reply.slot})[40] ^= std::byte{1};
  EXPECT_EQ(get_from(*store_, hash_, "h2").code(), ErrorCode::kDamaged);
  ASSERT_TRUE(store_->close());
  EXPECT_EQ(store_->no_checkpoint(), "the next start looks for damaged records");
}

// The catalog says when a checkpoint counts, so that no order of stops and crashes makes a wrong
// one count.
TEST_F(CheckpointTest, DamagedInAnyByteLeadsToAStartThatReadsAllRecords) {
  make_pool(4, 704 << 10);
  content_.clear();
  fill(12);
  ASSERT_TRUE(store_->close());
  const auto where = extent();
  ASSERT_TRUE(where);
  store_.reset();
  pool_.reset();
  uint64_t refused = 0;
  for (uint64_t i = 0; i < where->bytes; ++i) {
    model::PageBytes copy(region_.bytes());
    std::byte& byte = copy.data()[where->offset + i];
    const std::byte before = byte;
    byte ^= std::byte{static_cast<unsigned char>(1u << i % 8)};
    const auto pool = *persist::Pool::in_region(copy.bytes(), kDomain, false);
    const auto store = Store::open(*pool);
    ASSERT_TRUE(store) << i << ": " << store.error().message;
    ASSERT_EQ(difference(**store), "") << i;
    const RecoveryReport& report = (*store)->recovery();
    ASSERT_NE(report.from_checkpoint, !report.checkpoint_refused.empty()) << i;
    // What no checksum covers is padding.
    refused += report.from_checkpoint ? 0 : 1;
    ASSERT_TRUE(!report.from_checkpoint || before == std::byte{0}) << i;
  }
  EXPECT_GT(refused, where->bytes * 9 / 10);
}

// Both parts are whole. What is in them may or may not show that they have changed places; the
// checksum of the directory does.
TEST_F(CheckpointTest, WhosePartsChangedPlacesIsOfNoUse) {
  make_pool(4, 32 << 20);
  content_.clear();
  for (int i = 0; i < 9000; ++i) put(ordered_, fmt::format("{:0500}", i), "v");
  ASSERT_TRUE(store_->close());
  const auto where = extent();
  ASSERT_TRUE(where);
  CheckpointHeader header;
  std::memcpy(&header, region_.data() + where->offset, sizeof(header));
  std::byte* const directory = region_.data() + where->offset + header.directory_offset;
  std::vector<CheckpointSection*> parts;
  for (uint32_t i = 0; i < header.sections; ++i) {
    auto* const section = std::launder(reinterpret_cast<CheckpointSection*>(directory) + i);
    if (std::string_view(section->name) == "nodes") parts.push_back(section);
  }
  ASSERT_GE(parts.size(), 2u);
  std::swap(parts[0]->part, parts[1]->part);
  restart(false);
  EXPECT_EQ(store_->recovery().checkpoint_refused, "its directory is damaged");
  EXPECT_EQ(difference(*store_), "");
}

TEST_F(CheckpointTest, IsWholeOrOfNoUseWheneverThePowerGoes) {
  fill(6);
  crash::CrashRecorder recorder(pool_->memory());
  ASSERT_TRUE(store_->close());
  store_.reset();
  start();
  ASSERT_TRUE(store_->recovery().from_checkpoint);
  crash::CrashSearch search{.images_per_point = 20};
  const auto complaint = search.run(
      recorder.take(), [&](crash::CrashImage& image, size_t) -> std::optional<std::string> {
        const auto pool = persist::Pool::in_region(image.bytes(), kDomain, false);
        if (!pool) return pool.error().to_string();
        image.watch((*pool)->memory());
        const auto store = Store::open(**pool);
        if (!store) return store.error().to_string();
        const std::string differs = difference(**store);
        if (!differs.empty()) return differs;
        return std::nullopt;
      });
  EXPECT_FALSE(complaint) << *complaint;
  EXPECT_GT(search.images_seen, 100u);
}

}  // namespace
}  // namespace pmstore::internal
