// Headers of slabs that a start from a checkpoint does not read: they are looked at later, and what
// the medium has lost is written anew, so that a start after a crash finds each slab.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "persist/pool_layout.h"
#include "pmstore/check.h"
#include "tests/crash/crash_image.h"
#include "tests/unit/pmstore/shard/pool_on_a_file.h"
#include "tests/unit/pmstore/shard/store_fixture.h"

namespace pmstore::internal {
namespace {

enum Copies : unsigned { kOlder = 1, kNewest = 2, kBoth = 3 };

class SlabHeaders : public ::testing::Test {
 protected:
  static constexpr int kKeys = 60;

  // Slabs of several sizes; headers that were written once, and more often.
  void SetUp() override {
    for (int i = 0; i < kKeys; ++i) put(i, 300);
    for (int i = 0; i < kKeys; ++i) ASSERT_TRUE(s_.erase(key(i)));
    for (int i = 0; i < kKeys; ++i) put(i, 9000);
    for (int i = 0; i < kKeys; ++i) put(i, 100 + i % 4 * 400);
    stop_and_start();
  }
  void put(int i, size_t bytes) {
    const std::string value(bytes, static_cast<char>('a' + i % 26));
    ASSERT_TRUE(s_.put(key(i), value));
    values_[static_cast<size_t>(i)] = value;
  }
  static std::string key(int i) { return "key" + std::to_string(i); }
  void stop_and_start() {
    ASSERT_TRUE(s_.store().close());
    ASSERT_EQ(s_.store().no_checkpoint(), "");
    s_.restart();
    ASSERT_TRUE(s_.store().recovery().from_checkpoint);
  }
  void crash_and_start() {
    s_.reopen();
    ASSERT_FALSE(s_.store().recovery().from_checkpoint);
  }
  std::byte* header(uint32_t chunk) {
    return s_.store().arena().at(SlotOffset{chunk * kChunkBytes});
  }
  std::vector<uint32_t> slabs() {
    std::vector<uint32_t> chunks;
    s_.store().arena().for_each_slab(
        [&](const SlabArena::Slab& slab) { chunks.push_back(slab.first_chunk); });
    return chunks;
  }
  SlabHeader copy(uint32_t chunk, size_t number) {
    SlabHeader header;
    std::memcpy(&header, this->header(chunk) + number * kSlabCopyBytes, sizeof header);
    return header;
  }
  void damage(uint32_t chunk, unsigned copies) {
    const uint64_t newest = copy(chunk, 0).generation > copy(chunk, 1).generation ? 0 : 1;
    if ((copies & kNewest) != 0) std::memset(header(chunk) + newest * kSlabCopyBytes, 0x5a, 64);
    if ((copies & kOlder) != 0) {
      std::memset(header(chunk) + (1 - newest) * kSlabCopyBytes, 0x5a, 64);
    }
  }
  // How many looks it took.
  int look(uint32_t most = 2) {
    int looks = 0;
    for (; !s_.store().arena().header_look().over; ++looks) {
      EXPECT_TRUE(s_.store().look_at_headers(most));
    }
    return looks;
  }
  void expect_all() {
    for (int i = 0; i < kKeys; ++i) {
      const auto got = s_.get(key(i));
      ASSERT_TRUE(got) << got.error().message;
      EXPECT_EQ(got->value, values_[static_cast<size_t>(i)]) << i;
    }
    EXPECT_EQ(s_.store().live_records(), static_cast<uint64_t>(kKeys));
  }
  // Every state in which a crash can leave the memory while headers are looked at has all records.
  void expect_all_whenever_the_power_goes() {
    crash::CrashRecorder recorder(s_.pool().memory());
    look();
    ASSERT_GT(s_.store().arena().header_look().mended, 0u);
    crash::CrashSearch search{.images_per_point = 40};
    const auto complaint = search.run(
        recorder.take(), [&](crash::CrashImage& image, size_t) -> std::optional<std::string> {
          const auto pool =
              persist::Pool::in_region(image.bytes(), persist::Domain::kMemoryController, false);
          if (!pool) return pool.error().to_string();
          image.watch((*pool)->memory());
          const auto store = Store::open(**pool);
          if (!store) return store.error().to_string();
          for (int i = 0; i < kKeys; ++i) {
            const auto got = get_from(**store, s_.table(), key(i));
            if (!got || got->value != values_[static_cast<size_t>(i)]) return key(i);
          }
          return std::nullopt;
        });
    EXPECT_FALSE(complaint) << *complaint;
    EXPECT_GT(search.images_seen, 100u);
  }

  StoreInRegion s_{4 << 20};
  std::array<std::string, kKeys> values_;
};

TEST_F(SlabHeaders, InABadPageOfAFileRefuseAStartAfterACrash) {
  crash_and_start();
  const std::vector<uint32_t> chunks = slabs();
  const uint64_t at = s_.pool().memory().offset_of(header(chunks.back()));
  PoolOnAFile pool(s_.pool(), at + kSlabCopyBytes);
  EXPECT_EQ(check_startable(pool).code(), ErrorCode::kIo);
  const auto refused = Store::open(pool);
  ASSERT_EQ(refused.code(), ErrorCode::kIo);
  EXPECT_EQ(refused.error().message,
            "the headers of slab " + std::to_string(chunks.back()) +
                " cannot be read: the medium has an error; restore the pool from a backup if that "
                "stays so");
  // Nothing behind the two copies is read.
  pool.set_bad(at + 2 * kSlabCopyBytes, kSlabHeaderBytes - 2 * kSlabCopyBytes);
  EXPECT_TRUE(check_startable(pool));
  EXPECT_GE(pool.reads, 3 * chunks.size() - 1);
}

TEST_F(SlabHeaders, ThatAreWholeStayAsTheyAre) {
  std::vector<std::byte> before(s_.store().arena().first_records().begin(),
                                s_.store().arena().first_records().end());
  EXPECT_GE(look(), static_cast<int>(slabs().size() / 2));
  EXPECT_EQ(std::memcmp(before.data(), s_.store().arena().first_records().data(), before.size()),
            0);
  EXPECT_EQ(s_.store().arena().header_look().mended, 0u);
}

TEST_F(SlabHeaders, AreWrittenAnewBeforeACrashWhateverIsDamaged) {
  ASSERT_GT(slabs().size(), 3u);
  for (const bool all : {false, true}) {
    for (const unsigned copies : {kOlder, kNewest, kBoth}) {
      stop_and_start();
      const std::vector<uint32_t> damaged = all ? slabs() : std::vector{slabs()[1]};
      for (const uint32_t chunk : damaged) damage(chunk, copies);
      look();
      const SlabArena::HeaderLook& seen = s_.store().arena().header_look();
      EXPECT_EQ(seen.mended, damaged.size()) << all << copies;
      EXPECT_EQ(seen.lost, copies == kOlder ? 0 : damaged.size()) << all << copies;
      crash_and_start();
      expect_all();
    }
  }
}

TEST_F(SlabHeaders, AreMissedByACrashThatComesBefore) {
  damage(slabs()[1], kBoth);
  const std::span<std::byte> region(s_.pool().memory().at(0), s_.pool().info().bytes);
  const auto pool = *persist::Pool::in_region(region, persist::Domain::kMemoryController, false);
  EXPECT_EQ(Store::open(*pool).code(), ErrorCode::kBadPool);
}

TEST_F(SlabHeaders, OfFreeChunksKeepTheirBaseVersions) {
  const uint64_t version = s_.get(key(1))->reply.version;
  const uint64_t slot = s_.get(key(1))->reply.slot;
  for (int i = 0; i < kKeys; ++i) ASSERT_TRUE(s_.erase(key(i)));
  for (int i = 0; i < kKeys; ++i) put(i, 9000);  // takes what was free
  for (int i = 0; i < kKeys; ++i) ASSERT_TRUE(s_.erase(key(i)));
  stop_and_start();
  uint32_t free = 0;
  for (uint32_t chunk = 0; chunk < s_.store().arena().first_records().size() / kChunkBytes;
       ++chunk) {
    const bool is_header = copy(chunk, 0).magic == kSlabMagic || copy(chunk, 1).magic == kSlabMagic;
    if (!is_header) continue;
    damage(chunk, kBoth);
    ++free;
  }
  ASSERT_GT(free, 0u);
  look();
  EXPECT_GE(s_.store().arena().header_look().mended, slabs().size());
  crash_and_start();
  for (int i = 0; i < kKeys; ++i) put(i, 100 + i % 4 * 400);
  expect_all();
  for (int i = 0; i < kKeys; ++i) {
    const GetReply at = s_.get(key(i))->reply;
    if (at.slot == slot) {
      EXPECT_GT(at.version, version);
    }
  }
}

TEST_F(SlabHeaders, OfChunksThatWereNeverUsedAreNoSlabs) {
  const uint32_t unused = slabs().back() + 4;
  ASSERT_EQ(copy(unused, 1).generation, 0u);
  damage(unused, kBoth);
  look();
  EXPECT_EQ(s_.store().arena().header_look().mended, 1u);
  crash_and_start();
  expect_all();
}

TEST_F(SlabHeaders, ThatChangeMeanwhileAreNotTakenForDamage) {
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < kKeys; ++i) put(i, round % 2 == 0 ? 5000 : 200);
    ASSERT_TRUE(s_.store().look_at_headers(3));
  }
  look();
  EXPECT_EQ(s_.store().arena().header_look().mended, 0u);
  crash_and_start();
  expect_all();
}

TEST_F(SlabHeaders, WhoseOlderCopyIsDamagedAreNeverLostOnTheWay) {
  for (const uint32_t chunk : slabs()) damage(chunk, kOlder);
  expect_all_whenever_the_power_goes();
}

// What is damaged first has its content in both copies afterwards.
TEST_F(SlabHeaders, WhoseNewestCopyIsDamagedAreNeverLostOnTheWay) {
  for (const uint32_t chunk : slabs()) damage(chunk, kOlder);
  look();
  stop_and_start();
  for (const uint32_t chunk : slabs()) damage(chunk, kNewest);
  expect_all_whenever_the_power_goes();
}

TEST_F(SlabHeaders, NeedNoLookAfterAStartThatHasReadThem) {
  crash_and_start();
  damage(slabs()[1], kOlder);
  EXPECT_LE(look(), 1);
  EXPECT_EQ(s_.store().arena().header_look().mended, 0u);
}

// Slabs from the first chunk on, a hole, and headers of chunks that were never used.
TEST(SlabHeadersInAFile, AreReadOneByOneAndHolesArePassedOver) {
  StoreInRegion s{4 << 20};
  const std::string value(9000, 'v');
  for (int i = 0; i < 60; ++i) ASSERT_TRUE(s.put("key" + std::to_string(i), value));
  const SlabArena& arena = s.store().arena();
  const uint64_t chunks = arena.first_records().size() / kChunkBytes;
  uint64_t slabs = 0;
  arena.for_each_slab([&](const SlabArena::Slab& slab) { EXPECT_EQ(slab.first_chunk, slabs++); });
  ASSERT_GT(slabs, 5u);
  constexpr uint64_t kHole = 10;
  ASSERT_GT(chunks, slabs + kHole + 5);
  const uint64_t begin = arena.pool_offset(SlotOffset{0});
  PoolOnAFile pool(s.pool(), 0, 0);
  pool.set_hole(begin + slabs * kChunkBytes, begin + (slabs + kHole) * kChunkBytes);
  const auto opened = SlabArena::open(pool, s.store().catalog().header());
  ASSERT_TRUE(opened);
  uint64_t found = 0;
  opened->for_each_slab([&](const SlabArena::Slab& slab) { EXPECT_EQ(slab.first_chunk, found++); });
  EXPECT_EQ(found, slabs);
  // The first chunk of the hole is read, because a slab lies in front of it.
  const uint64_t behind = chunks - slabs - kHole;
  EXPECT_EQ(pool.reads, slabs + 1 + behind);
  EXPECT_EQ(pool.asked_for_data, 1 + 1 + behind - 1);
}

}  // namespace
}  // namespace pmstore::internal
