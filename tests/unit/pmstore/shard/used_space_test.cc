// Frames of records that are taken where something else has been: nothing of it is ever taken for a
// slab or a record, and a large frame takes no longer than a small one.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/checksum.h"
#include "pmstore/check.h"
#include "tests/crash/crash_image.h"
#include "tests/unit/pmstore/shard/record_frames_fixture.h"
#include "tests/unit/pmstore/shard/store_fixture.h"

namespace pmstore::internal {
namespace {

using namespace small_frames;

// What lies in the space before: slabs and live records of the same frame, as a file or log has
// them that somebody has made of a copy of the pool; or bytes that are nothing at all.
enum class Before : uint8_t { kFrame, kNothing };

class UsedSpace : public ::testing::TestWithParam<Before> {
 protected:
  static constexpr uint32_t kSecondFrame = kFrameBytes / kChunkBytes;

  void SetUp() override {
    const int count = fill(s_, 3);  // the second frame is full then
    const std::span<std::byte> second = s_.store().arena().frames().memory(1);
    const uint64_t at = s_.pool().memory().offset_of(second.data());
    std::vector<std::byte> image(second.begin(), second.end());
    if (GetParam() == Before::kNothing) image.assign(image.size(), std::byte{0x5a});
    erase(s_, 0, count);
    ASSERT_EQ(give_back(s_), 2);
    const auto log =
        s_.pool().allocate_extent(persist::ExtentKind::kLog, kFrameHeaderBytes + image.size());
    ASSERT_TRUE(log);
    ASSERT_EQ(log->offset + kFrameHeaderBytes, at) << "the second frame will be there again";
    s_.pool().memory().write(s_.pool().memory().at(at), image.data(), image.size());
    ASSERT_TRUE(s_.pool().memory().drain());
    ASSERT_TRUE(s_.pool().free_extent(*log));
    count_ = fill(s_, 2);
    ASSERT_EQ(s_.store().arena().frames().memory(1).data(), second.data());
  }
  uint64_t end_of_headers() { return s_.store().arena().frames().end_of_headers(1); }
  void expect_only_what_was_put() {
    EXPECT_EQ(s_.store().live_records(), static_cast<uint64_t>(count_));
    EXPECT_EQ(s_.store().recovery().damaged_records, 0u);
    expect_there(s_, 0, count_);
    EXPECT_TRUE(check_store(s_.pool())->sound());
  }

  void put(crash::CrashRecorder& recorder) {
    ASSERT_TRUE(s_.put(key_of(count_), value_of(count_)));
    ++count_;
    recorder.mark();
  }
  // To the first records of another chunk.
  void put_until_it_goes_on(crash::CrashRecorder& recorder) {
    for (const uint64_t had = end_of_headers(); end_of_headers() == had && !HasFailure();) {
      put(recorder);
    }
    put(recorder);
  }
  // Each image has what was put by then, after the `before` records that there were, and at most
  // what is being put.
  void expect_no_loss(crash::CrashRecorder& recorder, int before) {
    crash::CrashSearch search{.images_per_point = 12};
    const auto complaint = search.run(
        recorder.take(), [&](crash::CrashImage& image, size_t marks) -> std::optional<std::string> {
          const auto pool =
              persist::Pool::in_region(image.bytes(), persist::Domain::kMemoryController, false);
          if (!pool) return pool.error().to_string();
          image.watch((*pool)->memory());
          const auto store = Store::open(**pool);
          if (!store) return store.error().to_string();
          const auto live = static_cast<int>((*store)->live_records());
          const int done = before + static_cast<int>(marks);
          if (live < done || live > done + 1) return std::to_string(live) + " records";
          if ((*store)->recovery().damaged_records > 0) return "damaged records";
          for (int i = 0; i < live; ++i) {
            const auto got = get_from(**store, s_.table(), key_of(i));
            if (!got || got->value != value_of(i)) return key_of(i);
          }
          return std::nullopt;
        });
    EXPECT_FALSE(complaint) << *complaint;
    EXPECT_GT(search.images_seen, 100u);
  }

  StoreInRegion s_{4 << 20, in_frames()};
  int count_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Over, UsedSpace, ::testing::Values(Before::kFrame, Before::kNothing),
                         [](const auto& each) {
                           return each.param == Before::kFrame ? "AFrame" : "Nothing";
                         });

TEST_P(UsedSpace, IsNeverTakenForRecordsHoweverMuchOfTheFrameIsUsed) {
  std::vector<uint64_t> seen;
  for (; extents(s_) < 3; ++count_) {
    if (seen.empty() || seen.back() != end_of_headers()) {
      seen.push_back(end_of_headers());
      s_.reopen();
      expect_only_what_was_put();
      EXPECT_EQ(end_of_headers(), seen.back());
    }
    ASSERT_TRUE(s_.put(key_of(count_), value_of(count_)));
  }
  EXPECT_EQ(seen, (std::vector<uint64_t>{kSecondFrame + 1, kSecondFrame + 2, kSecondFrame + 3}));
  s_.reopen();
  expect_only_what_was_put();
}

TEST_P(UsedSpace, IsNeverTakenForRecordsByAStartFromACheckpoint) {
  ASSERT_TRUE(s_.store().close());
  s_.restart();
  ASSERT_TRUE(s_.store().recovery().from_checkpoint);
  while (!s_.store().arena().header_look().over) ASSERT_TRUE(s_.store().look_at_headers(64));
  EXPECT_EQ(s_.store().arena().header_look().mended, 0u) << "what has no header needs none";
  for (const uint64_t before = end_of_headers(); end_of_headers() == before; ++count_) {
    ASSERT_TRUE(s_.put(key_of(count_), value_of(count_)));
  }
  s_.reopen();
  expect_only_what_was_put();
}

TEST_P(UsedSpace, ALargeRecordGetsHeadersForAllOfItsChunks) {
  ASSERT_EQ(end_of_headers(), kSecondFrame + 1);
  const auto slot = s_.store().arena().allocate(size_class_of(kChunkBytes));
  ASSERT_TRUE(slot);
  EXPECT_EQ(end_of_headers(), kSecondFrame + 3) << "two more";
  s_.reopen();
  expect_only_what_was_put();
}

// At each step the power goes. What was put before is there, and nothing else.
TEST_P(UsedSpace, LosesAndFindsNothingWheneverThePowerGoes) {
  const int before = count_;
  crash::CrashRecorder recorder(s_.pool().memory());
  put_until_it_goes_on(recorder);
  expect_no_loss(recorder, before);
}

// The process dies when the frame's progress is in the CPU's caches only, and the power goes later.
TEST_P(UsedSpace, LosesNothingWhenTheProcessHasDiedBefore) {
  const int before = count_;
  crash::CrashRecorder recorder(s_.pool().memory());
  persist::Memory& memory = s_.pool().memory();
  std::byte* const chunk = s_.store().arena().frames().memory(1).data() + kChunkBytes;
  memory.zero(chunk, kSlabHeaderBytes);
  memory.flush(chunk, kSlabHeaderBytes);
  ASSERT_TRUE(memory.drain());
  std::byte* const extent = chunk - kChunkBytes - kFrameHeaderBytes;
  FrameHeader header;
  std::memcpy(&header, extent, sizeof header);
  FrameProgress progress{0, 2};
  progress.crc = base::crc32c(std::as_bytes(std::span(&progress.chunks, 1)), header.crc);
  memory.store64(reinterpret_cast<uint64_t*>(extent + kFrameProgressOffset),
                 std::bit_cast<uint64_t>(progress));
  s_.restart();
  ASSERT_EQ(end_of_headers(), kSecondFrame + 2);
  const uint64_t last = (kSecondFrame + 1) * kChunkBytes;
  while (raw(SlotOffset{s_.get(key_of(count_ - 1))->reply.slot}) < last && !HasFailure()) {
    put(recorder);
  }
  put(recorder);
  EXPECT_EQ(end_of_headers(), kSecondFrame + 2);
  expect_no_loss(recorder, before);
}

// Of the slot that takes the second frame, where something has been in all of the free space.
uint64_t lines_of_taking(uint64_t frame_bytes) {
  StoreInRegion s(3 * frame_bytes + (2 << 20), in_frames(frame_bytes));
  const auto log =
      s.pool().allocate_extent(persist::ExtentKind::kLog, s.pool().largest_free_extent());
  std::memset(s.pool().memory().at(log->offset), 0x5a, log->bytes);
  EXPECT_TRUE(s.pool().free_extent(*log));
  uint64_t lines = 0;
  while (extents(s) < 2) {
    const uint64_t before = s.pool().memory().stats().flushed_lines;
    EXPECT_TRUE(s.store().arena().allocate(size_class_of(20'000)));
    lines = s.pool().memory().stats().flushed_lines - before;
  }
  EXPECT_EQ(s.store().arena().frames().memory(1).size(), frame_bytes - kChunkBytes);
  return lines;
}

TEST(FramesOverUsedSpace, ALargeOneTakesAsManyLinesAsASmallOne) {
  const uint64_t small = lines_of_taking(4 << 20);
  EXPECT_EQ(lines_of_taking(32 << 20), small);
  EXPECT_LT(small, 100u) << "of 65,536 in the small frame";
}

// Earlier releases zeroed a frame when they took it, and did not keep how far its headers go.
TEST(FramesOverUsedSpace, AZeroedFrameOfAnEarlierReleaseKeepsItsRecords) {
  StoreInRegion s(2 << 20, in_frames());
  const int count = fill(s, 2);
  for (const persist::Extent& extent : s.pool().info().extents) {
    std::byte* const at = s.pool().memory().at(extent.offset);
    FrameHeader header;
    std::memcpy(&header, at, sizeof header);
    if (extent.kind != persist::ExtentKind::kRecords || header.magic != kFrameMagic) continue;
    header.magic = kZeroedFrameMagic;
    std::memcpy(at, &header, sizeof header);
    std::memset(at + kFrameProgressOffset, 0, sizeof(FrameProgress));
    s.reopen();
    const RecordFrames& frames = s.store().arena().frames();
    const auto first = static_cast<uint32_t>(header.frame * frames.frame_bytes() / kChunkBytes);
    EXPECT_EQ(frames.end_of_headers(header.frame), first + header.chunks);
    expect_there(s, 0, count);
    EXPECT_TRUE(s.put(key_of(count), value_of(count)));
    return;
  }
  FAIL() << "there is a frame that came later";
}

TEST(SlabClaims, OneSlabOfAnotherSizeGivesNotAllEmptySlabsBack) {
  StoreInRegion s(20 << 20);
  const std::string value(20'000, 'v');
  int count = 0;
  while (s.put("key" + std::to_string(count), value)) ++count;
  ASSERT_GT(count, 3 * 128) << "in 128 slabs and more";
  for (int i = 0; i < count; ++i) ASSERT_TRUE(s.erase("key" + std::to_string(i)));
  const auto drains = [&] { return s.pool().memory().stats().drains; };
  const uint64_t before = drains();
  ASSERT_TRUE(s.put("small", "v"));
  EXPECT_LT(drains() - before, 64u + 16) << "64 slabs with a drain each, and the put";
  EXPECT_GE(drains() - before, 64u);
  s.reopen();
  for (int i = 0; i < count; ++i) ASSERT_TRUE(s.put("key" + std::to_string(i), "v")) << i;
}

}  // namespace
}  // namespace pmstore::internal
