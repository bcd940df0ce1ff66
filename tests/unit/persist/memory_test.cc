#include "persist/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>
#include <vector>

#include "base/atomic_copy.h"
#include "base/checksum.h"
#include "base/random.h"
#include "persist/internal/copy_summed.h"
#include "persist/internal/dirty_pages.h"
#include "persist/internal/instructions.h"
#include "persist/padding.h"
#include "tests/unit/persist/recorder.h"

namespace pmstore::persist {
namespace {

using ::testing::ElementsAre;

constexpr size_t kBytes = 1 << 20;

class MemoryTest : public testing::TestWithParam<Domain> {
 protected:
  MemoryTest() {
    void* mapped =
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(mapped, MAP_FAILED);
    region_ = {static_cast<std::byte*>(mapped), kBytes};
  }
  ~MemoryTest() override { munmap(region_.data(), region_.size()); }

  static std::vector<std::byte> pattern(size_t bytes, uint64_t seed) {
    Random random(seed);
    std::vector<std::byte> out(bytes);
    for (auto& b : out) b = std::byte(random.next());
    return out;
  }

  std::span<std::byte> region_;
};

class EveryDomain : public MemoryTest {};
INSTANTIATE_TEST_SUITE_P(Memory, EveryDomain,
                         testing::Values(Domain::kNone, Domain::kMemoryController,
                                         Domain::kCpuCache),
                         [](const auto& each) { return std::string(domain_name(each.param)); });

TEST_P(EveryDomain, WritesExactlyTheBytesAtEverySizeAndAlignment) {
  Memory memory(region_, {.domain = GetParam(), .non_temporal_bytes = 256});
  std::vector<std::byte> expected(8192);
  for (size_t bytes : {1u, 7u, 8u, 63u, 64u, 65u, 255u, 256u, 257u, 511u, 1000u, 4096u}) {
    for (size_t offset : {0u, 1u, 8u, 56u, 63u, 64u, 100u}) {
      const auto data = pattern(bytes, bytes * 131 + offset);
      std::fill(expected.begin(), expected.end(), std::byte{0xee});
      std::fill_n(region_.begin(), expected.size(), std::byte{0xee});
      std::copy(data.begin(), data.end(), expected.begin() + offset);
      memory.write(memory.at(offset), data.data(), bytes);
      ASSERT_TRUE(memory.drain());
      ASSERT_EQ(std::memcmp(expected.data(), region_.data(), expected.size()), 0)
          << bytes << " bytes at " << offset;
      std::fill_n(region_.begin(), expected.size(), std::byte{0xee});
      memory.write_non_temporal(memory.at(offset), data.data(), bytes);
      ASSERT_EQ(std::memcmp(expected.data(), region_.data(), expected.size()), 0)
          << bytes << " bytes at " << offset;
      std::fill_n(region_.begin(), expected.size(), std::byte{0xee});
      memory.write_part(memory.at(offset), data.data(), bytes / 2, bytes);
      memory.write_part(memory.at(offset + bytes / 2), data.data() + bytes / 2, bytes - bytes / 2,
                        bytes);
      memory.end_parts();
      ASSERT_EQ(std::memcmp(expected.data(), region_.data(), expected.size()), 0)
          << bytes << " bytes at " << offset << " in two parts";
    }
  }
}

TEST_P(EveryDomain, SumsExactlyWhatItStoresAtEverySizeAndAlignment) {
  Memory memory(region_, {.domain = GetParam(), .non_temporal_bytes = 256});
  std::vector<std::byte> expected(1 << 14);
  for (size_t lines = 0; lines <= 66; ++lines) {  // each number of lanes and lines left
    for (size_t rest : {0u, 1u, 63u}) {
      for (size_t offset : {0u, 8u, 64u, 100u}) {
        const size_t bytes = lines * 64 + rest;
        const auto data = pattern(bytes + 1, bytes * 131 + offset);
        const auto source = std::span(data).subspan(1);  // aligned to nothing
        std::fill(expected.begin(), expected.end(), std::byte{0xee});
        std::fill_n(region_.begin(), expected.size(), std::byte{0xee});
        std::copy(source.begin(), source.end(), expected.begin() + offset);
        for (size_t whole : {bytes, size_t{255}, size_t{256}}) {
          const uint32_t crc =
              memory.write_part_summed(memory.at(offset), source.data(), bytes, whole, 0xabcdef01);
          memory.end_parts();
          ASSERT_EQ(crc, base::crc32c(source, 0xabcdef01)) << bytes << " bytes at " << offset;
          ASSERT_EQ(std::memcmp(expected.data(), region_.data(), expected.size()), 0)
              << bytes << " bytes at " << offset;
        }
      }
    }
  }
}

// Memory takes the one that is best for so many lines; both have to be right for all.
TEST_F(MemoryTest, SumsAlikeByWordsAndByLines) {
  using enum internal::CopyWidth;
  const auto data = pattern(300 * 64 + 1, 9);
  const std::byte* const source = data.data() + 1;
  if (!internal::processor_sums()) GTEST_SKIP() << "this processor does not sum";
  if (internal::best_width(100) != kLines) GTEST_SKIP() << "this processor sums no lines";
  for (size_t lines = 0; lines <= 300; lines += lines < 80 ? 1 : 7) {
    for (const internal::CopyWidth width : {kWords, kLines}) {
      for (const auto path : {internal::CopyPath::kCached, internal::CopyPath::kPastCaches}) {
        std::fill_n(region_.begin(), 301 * 64, std::byte{0xee});
        const uint32_t crc =
            internal::copy_lines_summed(region_.data(), source, lines, path, 0x1234, width);
        ASSERT_EQ(crc, base::crc32c({source, lines * 64}, 0x1234)) << lines;
        ASSERT_EQ(std::memcmp(region_.data(), source, lines * 64), 0) << lines;
        ASSERT_EQ(region_[lines * 64], std::byte{0xee}) << lines;
      }
    }
  }
}

// Word by word, where that is a way to write at all: not where lines must be flushed, nor where
// somebody looks at each store.
TEST_P(EveryDomain, FramesCarryTheSumOfWhatIsInThem) {
  Memory memory(region_, {.domain = GetParam()});
  if (!internal::processor_sums()) GTEST_SKIP() << "this processor does not sum";
  const bool cached = GetParam() != Domain::kMemoryController;
  const std::array<uint64_t, 3> head{0x1122334400000000, 5, 0x0123456789abcdef};
  for (size_t body_bytes = 0; body_bytes <= 40; ++body_bytes) {
    for (size_t head_words : {1u, 3u}) {
      const auto data = pattern(body_bytes + 1, body_bytes);
      const auto body = std::span(data).subspan(1);  // aligned to nothing
      const auto words = std::span(head).first(head_words);
      std::vector<std::byte> expected(128, std::byte{0xee});
      std::fill_n(expected.begin() + 8, 80, std::byte{0});
      std::memcpy(expected.data() + 8, head.data(), words.size_bytes());
      std::copy(body.begin(), body.end(), expected.begin() + 8 + words.size_bytes());
      const size_t summed = words.size_bytes() - 4 + body_bytes;
      const uint32_t crc = base::crc32c({expected.data() + 12, summed}, 0x1234);
      std::memcpy(expected.data() + 8, &crc, sizeof crc);
      std::fill_n(region_.begin(), expected.size(), std::byte{0xee});
      ASSERT_EQ(memory.write_frame(memory.at(8), words, body, 80, 0x1234), cached);
      if (!cached) std::fill(expected.begin(), expected.end(), std::byte{0xee});
      ASSERT_EQ(std::memcmp(expected.data(), region_.data(), expected.size()), 0) << body_bytes;
      ASSERT_TRUE(memory.drain());
    }
  }
  EXPECT_EQ(memory.stats().msyncs, GetParam() == Domain::kNone ? 82u : 0u);
  {
    const Recorder recorder(memory);
    EXPECT_FALSE(memory.write_frame(memory.at(8), head, {}, 80, 0));
  }
  Memory all_streamed(region_, {.domain = GetParam(), .non_temporal_bytes = 64});  // rule H4
  EXPECT_EQ(all_streamed.write_frame(memory.at(8), head, {}, 80, 0), GetParam() == Domain::kNone);
}

TEST_P(EveryDomain, ZeroesLargeRanges) {
  Memory memory(region_, {.domain = GetParam()});
  std::fill(region_.begin(), region_.end(), std::byte{1});
  memory.zero(memory.at(5), 100'000);
  EXPECT_EQ(std::count(region_.begin(), region_.end(), std::byte{0}), 100'000);
  EXPECT_EQ(region_[4], std::byte{1});
  EXPECT_EQ(region_[100'005], std::byte{1});
}

TEST_P(EveryDomain, ReportsEveryStepInOrder) {
  Memory memory(region_, {.domain = GetParam(), .non_temporal_bytes = 256});
  Recorder recorder(memory);
  const auto data = pattern(512, 1);
  memory.write(memory.at(64), data.data(), 128);
  memory.store64(reinterpret_cast<uint64_t*>(memory.at(8)), 7);
  memory.flush(memory.at(8), 8);
  ASSERT_TRUE(memory.drain());
  EXPECT_THAT(recorder.take(),
              ElementsAre("store 64+128", "flush 64+128", "store 8+8", "flush 8+8", "drain"));
}

TEST_F(MemoryTest, LargeWritesStreamWholeLinesAndFlushTheEnds) {
  for (Domain domain : {Domain::kMemoryController, Domain::kCpuCache}) {
    Memory memory(region_, {.domain = domain, .non_temporal_bytes = 256});
    Recorder recorder(memory);
    const auto data = pattern(512, 2);
    memory.write(memory.at(1000), data.data(), 300);
    EXPECT_THAT(recorder.take(), ElementsAre("store 1000+24", "flush 1000+24", "stream 1024+256",
                                             "store 1280+20", "flush 1280+20"));
    memory.write(memory.at(1024), data.data(), 256);
    EXPECT_THAT(recorder.take(), ElementsAre("stream 1024+256"));
    memory.write(memory.at(1024), data.data(), 255);
    EXPECT_THAT(recorder.take(), ElementsAre("store 1024+255", "flush 1024+255"));
    memory.write_non_temporal(memory.at(1024), data.data(), 64);
    EXPECT_THAT(recorder.take(), ElementsAre("stream 1024+64"));
    memory.write_non_temporal(memory.at(1030), data.data(), 90);
    EXPECT_THAT(recorder.take(), ElementsAre("store 1030+90", "flush 1030+90"));
  }
}

TEST_F(MemoryTest, PartsGoAsTheirWholeWould) {
  Memory memory(region_, {.domain = Domain::kMemoryController, .non_temporal_bytes = 256});
  Recorder recorder(memory);
  const auto data = pattern(512, 2);
  memory.write_part(memory.at(1024), data.data(), 64, 255);
  EXPECT_THAT(recorder.take(), ElementsAre("store 1024+64", "flush 1024+64"));
  memory.write_part(memory.at(1024), data.data(), 64, 256);
  EXPECT_THAT(recorder.take(), ElementsAre("stream 1024+64"));
  memory.write_part_summed(memory.at(1024), data.data(), 200, 255, 0);
  EXPECT_THAT(recorder.take(),
              ElementsAre("store 1024+192", "flush 1024+192", "store 1216+8", "flush 1216+8"));
  memory.write_part_summed(memory.at(1024), data.data(), 200, 256, 0);
  EXPECT_THAT(recorder.take(), ElementsAre("stream 1024+192", "store 1216+8", "flush 1216+8"));
}

// Where lines have to be flushed, fresh ones are streamed however few; where not, as rule H4 says.
TEST_F(MemoryTest, FreshLinesAreNotReadToBeFlushed) {
  const auto data = pattern(512, 2);
  for (const Domain domain : {Domain::kNone, Domain::kMemoryController, Domain::kCpuCache}) {
    Memory memory(region_, {.domain = domain, .non_temporal_bytes = 256});
    Recorder recorder(memory);
    memory.write_fresh_part(memory.at(1024), data.data(), 128);
    const bool few = domain == Domain::kMemoryController;
    EXPECT_EQ(recorder.take(),
              few ? std::vector<std::string>{"stream 1024+128"}
                  : (std::vector<std::string>{"store 1024+128", "flush 1024+128"}));
    memory.write_fresh_part(memory.at(1024), data.data(), 256);
    const bool many = domain != Domain::kNone;
    EXPECT_EQ(recorder.take(),
              many ? std::vector<std::string>{"stream 1024+256"}
                   : (std::vector<std::string>{"store 1024+256", "flush 1024+256"}));
    EXPECT_EQ(std::memcmp(region_.data() + 1024, data.data(), 256), 0);
  }
  Memory memory(region_, {.domain = Domain::kMemoryController, .non_temporal_bytes = 256});
  Recorder recorder(memory);
  memory.write_fresh_part(memory.at(1000), data.data(), 90);  // lines that are not whole
  EXPECT_THAT(recorder.take(), ElementsAre("store 1000+24", "flush 1000+24", "stream 1024+64",
                                           "store 1088+2", "flush 1088+2"));
}

TEST_F(MemoryTest, RuleH4CanBeSwitchedOff) {
  Memory memory(region_, {.domain = Domain::kMemoryController, .non_temporal_bytes = SIZE_MAX});
  Recorder recorder(memory);
  const auto data = pattern(4096, 3);
  memory.write(memory.at(0), data.data(), 4096);
  EXPECT_THAT(recorder.take(), ElementsAre("store 0+4096", "flush 0+4096"));
  memory.write_fresh_part(memory.at(0), data.data(), 64);
  EXPECT_THAT(recorder.take(), ElementsAre("store 0+64", "flush 0+64"));
}

TEST_F(MemoryTest, OrdinaryFilesAreNeverStreamedTo) {
  Memory memory(region_, {.domain = Domain::kNone, .non_temporal_bytes = 256});
  Recorder recorder(memory);
  const auto data = pattern(4096, 3);
  memory.write(memory.at(0), data.data(), 4096);
  EXPECT_THAT(recorder.take(), ElementsAre("store 0+4096", "flush 0+4096"));
}

TEST_F(MemoryTest, CountsTheLinesFlushedUnderAdrOnly) {
  Memory adr(region_, {.domain = Domain::kMemoryController});
  adr.flush(adr.at(60), 8);
  adr.flush(adr.at(64), 64);
  adr.flush(adr.at(64), 0);
  ASSERT_TRUE(adr.drain());
  EXPECT_EQ(adr.stats().flushed_lines, 3u);
  EXPECT_EQ(adr.stats().drains, 1u);
  EXPECT_EQ(adr.stats().msyncs, 0u);

  Memory eadr(region_, {.domain = Domain::kCpuCache});
  eadr.flush(eadr.at(0), 4096);
  ASSERT_TRUE(eadr.drain());
  EXPECT_EQ(eadr.stats().flushed_lines, 0u);
  EXPECT_EQ(eadr.stats().drains, 1u);
}

TEST_F(MemoryTest, MsyncsEachAreaOnce) {
  Memory memory(region_, {.domain = Domain::kNone});
  memory.flush(memory.at(0), 10);
  memory.flush(memory.at(100), 10);
  memory.flush(memory.at(40960), 5000);
  memory.flush(memory.at(4096), 10);
  ASSERT_TRUE(memory.drain());
  EXPECT_EQ(memory.stats().msyncs, 1u);  // pages 0 to 11
  ASSERT_TRUE(memory.drain());
  EXPECT_EQ(memory.stats().msyncs, 1u);

  memory.begin_area(36864);
  memory.flush(memory.at(40960), 5000);
  memory.flush(memory.at(4096), 10);
  memory.flush(memory.at(0), 10);
  ASSERT_TRUE(memory.drain());
  EXPECT_EQ(memory.stats().msyncs, 3u);  // pages 0-1 and 10-11
}

TEST_F(MemoryTest, AFailedMsyncIsReportedForGood) {
  Memory memory(region_, {.domain = Domain::kNone});
  memory.flush(memory.at(8192), 10);
  // msync of a hole in the address space is ENOMEM.
  ASSERT_EQ(munmap(region_.data() + 8192, 4096), 0);
  const auto failed = memory.drain();
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.code(), ErrorCode::kIo);
  memory.flush(memory.at(0), 10);
  EXPECT_FALSE(memory.drain()) << "what was lost then is still lost";
}

TEST_F(MemoryTest, StoresOutsideTheMappingAreBugs) {
  Memory memory(region_, {.domain = Domain::kCpuCache});
  const uint64_t word = 1;
  EXPECT_DEATH(memory.store(memory.at(kBytes - 4), &word, 8), "outside the pool");
  EXPECT_DEATH(memory.write(memory.base() - 8, &word, 8), "outside the pool");
  EXPECT_DEATH(memory.store64(reinterpret_cast<uint64_t*>(memory.at(4)), 1), "torn");
  EXPECT_DEATH(memory.write_frame(memory.at(kBytes - 8), {&word, 1}, {}, 16, 0),
               "outside the pool");
  EXPECT_DEATH(memory.write_frame(memory.at(4), {&word, 1}, {}, 16, 0), "room");
  EXPECT_DEATH(
      memory.write_frame(memory.at(0), {&word, 1}, std::as_bytes(std::span(&word, 1)), 8, 0),
      "room");
}

// The thread sanitizer run of this test is the point of it: publishing by a release store after a
// streamed write must be enough for a reader, and racing with a seqlock-like reader must be
// defined.
TEST_F(MemoryTest, StreamedDataIsVisibleBeforeTheWordThatPublishesIt) {
  Memory memory(region_, {.domain = Domain::kMemoryController, .non_temporal_bytes = 256});
  auto* published = reinterpret_cast<uint64_t*>(memory.at(0));
  constexpr uint64_t kRounds = 20'000;
  std::thread reader([&] {
    std::vector<uint64_t> seen(64);
    for (uint64_t round = 0; round < kRounds;) {
      round = __atomic_load_n(published, __ATOMIC_ACQUIRE);
      base::copy_from_shared(seen.data(), memory.at(4096), 512);
      for (uint64_t word : seen) EXPECT_GE(word, round);
    }
  });
  std::vector<uint64_t> data(64);
  for (uint64_t round = 1; round <= kRounds; ++round) {
    std::fill(data.begin(), data.end(), round);
    memory.write(memory.at(4096), data.data(), 512);
    __atomic_store_n(published, round, __ATOMIC_RELEASE);
  }
  reader.join();
}

TEST_F(MemoryTest, ThreadsCountSeparately) {
  Memory memory(region_, {.domain = Domain::kMemoryController});
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&memory, t] {
      for (size_t i = 0; i < 1000; ++i) memory.flush(memory.at(t * 4096), 64);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(memory.stats().flushed_lines, 4000u);
}

TEST(FlushInstructions, EachOneThatThisProcessorHasExecutes) {
  alignas(64) std::byte line[64] = {};
  const auto best = internal::best_flush_instruction();
  for (auto each : {internal::FlushInstruction::kClwb, internal::FlushInstruction::kClflushopt,
                    internal::FlushInstruction::kClflush}) {
    if (each < best) continue;
    line[0] = std::byte(1 + static_cast<int>(each));
    internal::flush_line(each, line);
    internal::store_fence();
    EXPECT_EQ(line[0], std::byte(1 + static_cast<int>(each)))
        << internal::flush_instruction_name(each);
  }
}

TEST(DirtyPages, KeepOneRangeForEachArea) {
  internal::DirtyPages pages(4096);
  pages.note(0x9000, 0x9001);
  pages.note(0x1fff, 0x2001);
  pages.note(0x2800, 0x2900);
  ASSERT_EQ(pages.ranges().size(), 1u);
  EXPECT_EQ(pages.ranges()[0].begin, 0x1000u);
  EXPECT_EQ(pages.ranges()[0].end, 0xa000u);
  pages.begin_area(0x8800);
  pages.begin_area(0x8800);
  ASSERT_EQ(pages.ranges().size(), 2u);
  EXPECT_EQ(pages.ranges()[0].end, 0xa000u) << "what was noted stays noted";
  pages.clear();
  EXPECT_TRUE(pages.ranges()[0].is_empty() && pages.ranges()[1].is_empty());
  pages.note(0x87ff, 0x8801);  // in the first area, over its end
  pages.note(0x8800, 0x8801);
  EXPECT_EQ(pages.ranges()[0].begin, 0x8000u);
  EXPECT_EQ(pages.ranges()[0].end, 0x9000u);
  EXPECT_EQ(pages.ranges()[1].begin, 0x8000u);
  EXPECT_EQ(pages.ranges()[1].end, 0x9000u);
}

TEST(DirtyPages, OfAreasThatEndCountForTheAreaBefore) {
  internal::DirtyPages pages(4096);
  for (const uintptr_t first : {0x10000, 0x20000, 0x30000, 0x40000}) pages.begin_area(first);
  pages.note(0x11000, 0x12000);
  pages.note(0x23000, 0x24000);
  pages.note(0x31000, 0x32000);
  pages.end_areas(0x20000, 0x30000);
  ASSERT_EQ(pages.ranges().size(), 3u);
  EXPECT_EQ(pages.ranges()[1].begin, 0x11000u);
  EXPECT_EQ(pages.ranges()[1].end, 0x32000u);
  pages.note(0x41000, 0x42000);
  EXPECT_EQ(pages.ranges()[2].begin, 0x41000u);
  pages.end_areas(0, UINTPTR_MAX);
  ASSERT_EQ(pages.ranges().size(), 1u) << "there is always one";
  EXPECT_EQ(pages.ranges()[0].begin, 0x11000u);
  EXPECT_EQ(pages.ranges()[0].end, 0x42000u);
}

TEST(DirtyPages, ForgetNothing) {
  internal::DirtyPages pages(4096);
  Random random(7);
  std::vector<uintptr_t> noted;
  for (int i = 0; i < 1000; ++i) {
    if (i % 100 == 50) pages.begin_area(0x100000 + random.below(1 << 24));
    if (i % 300 == 250) {
      const uintptr_t first = 0x100000 + random.below(1 << 24);
      pages.end_areas(first, first + (1 << 20));
    }
    const uintptr_t at = 0x100000 + random.below(1 << 24);
    const uintptr_t last = at + random.below(9000);
    pages.note(at, last + 1);
    noted.push_back(at);
    noted.push_back(last);
  }
  ASSERT_LE(pages.ranges().size(), 11u);
  ASSERT_GE(pages.ranges().size(), 6u);
  for (uintptr_t at : noted) {
    ASSERT_TRUE(std::any_of(pages.ranges().begin(), pages.ranges().end(), [at](const auto& range) {
      return range.begin <= at && at < range.end;
    }));
  }
}

TEST(Padding, FollowsTheRulesAndEachCanBeSwitchedOff) {
  EXPECT_EQ(padded_bytes(1, true), 64u);
  EXPECT_EQ(padded_bytes(65, false), 128u);
  EXPECT_EQ(padded_bytes(255, true), 256u);
  EXPECT_EQ(padded_bytes(256, true), 256u);
  EXPECT_EQ(padded_bytes(257, false), 512u);
  EXPECT_EQ(padded_bytes(0, true), 64u);
  EXPECT_EQ(padded_bytes(257, true, {.xp_line = false}), 264u);
  EXPECT_EQ(padded_bytes(9, true, {.one_sided_line = false}), 16u);
  EXPECT_EQ(padded_bytes(9, false, {.one_sided_line = false}), 64u);
  EXPECT_EQ(padded_bytes(9, false, {.two_sided_line = false}), 16u);
}

TEST(Domain, NamesRoundTrip) {
  for (Domain domain : {Domain::kNone, Domain::kMemoryController, Domain::kCpuCache}) {
    EXPECT_EQ(parse_domain(domain_name(domain)).value(), domain);
  }
  const auto wrong = parse_domain("optane");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(wrong.error().message.find("none, adr or eadr"), std::string::npos);
}

}  // namespace
}  // namespace pmstore::persist
