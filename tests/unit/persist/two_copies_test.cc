#include "persist/two_copies.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <vector>

#include "base/checksum.h"
#include "tests/unit/persist/recorder.h"

namespace pmstore::persist {
namespace {

constexpr uint64_t kOffset = 256;
constexpr uint64_t kStride = 128;

struct Header {
  uint32_t magic;
  uint32_t crc;
  uint64_t generation;
  uint64_t mark;
};

uint32_t crc_of(const Header& header) {
  return base::crc32c(std::as_bytes(std::span(&header, 1)).subspan(8));
}

class TwoCopiesTest : public ::testing::Test {
 protected:
  Persisted drained() { return *memory_.drain(); }
  // As the owner of a header keeps it: the header that was written last.
  void write(uint64_t mark) {
    header_.mark = mark;
    ASSERT_TRUE(copies_.write(drained(), header_, crc_of));
  }
  std::optional<TwoCopies<Header>::Found> read() {
    return *copies_.read([](const Header& header) { return header.crc == crc_of(header); });
  }
  std::byte* copy_at(size_t copy) { return memory_.at(kOffset + copy * kStride); }

  alignas(4096) std::array<std::byte, 4096> bytes_{};
  Memory memory_{bytes_, MemoryOptions{.domain = Domain::kMemoryController}};
  TwoCopies<Header> copies_{memory_, kOffset, kStride};
  Header header_{.magic = 7, .crc = 0, .generation = 0, .mark = 0};
};

TEST_F(TwoCopiesTest, NothingIsFoundBeforeTheFirstWrite) {
  EXPECT_FALSE(read());
  EXPECT_TRUE(copies_.is_blank(0));
  EXPECT_TRUE(copies_.is_blank(1));
}

TEST_F(TwoCopiesTest, TheFirstWriteGoesToCopyOneAndIsDurable) {
  Recorder recorder(memory_);
  ASSERT_TRUE(copies_.write_first(header_, crc_of));
  EXPECT_EQ(recorder.take(), (std::vector<std::string>{"store 384+24", "flush 384+24", "drain"}));
  EXPECT_EQ(header_.generation, 1u);
  EXPECT_TRUE(copies_.is_blank(0));
  ASSERT_TRUE(read());
  EXPECT_EQ(read()->copy, 1u);
  EXPECT_FALSE(read()->both_valid);
}

TEST_F(TwoCopiesTest, WritesTakeTurnsAndTheLastOneIsFound) {
  ASSERT_TRUE(copies_.write_first(header_, crc_of));
  for (uint64_t mark = 2; mark < 8; ++mark) {
    write(mark);
    ASSERT_TRUE(read());
    EXPECT_EQ(read()->header.mark, mark);
    EXPECT_EQ(read()->header.generation, mark);
    EXPECT_EQ(read()->copy, mark % 2);
    EXPECT_TRUE(read()->both_valid);
    EXPECT_FALSE(read()->copies_agree);
  }
}

TEST_F(TwoCopiesTest, AWriteThatIsTornAtAnyByteLeavesTheHeaderBeforeIt) {
  ASSERT_TRUE(copies_.write_first(header_, crc_of));
  for (uint64_t mark = 2; mark < 4; ++mark) {
    const auto before = bytes_;
    write(mark);
    const auto after = bytes_;
    for (size_t torn = 0; torn < sizeof(Header); ++torn) {
      bytes_ = before;
      std::memcpy(copy_at(mark % 2), after.data() + kOffset + mark % 2 * kStride, torn);
      ASSERT_TRUE(read());
      // A prefix that ends in zeros which the older header has as well may be the whole header.
      const bool whole = std::memcmp(copy_at(mark % 2), after.data() + kOffset + mark % 2 * kStride,
                                     sizeof(Header)) == 0;
      EXPECT_EQ(read()->header.generation, whole ? mark : mark - 1) << torn;
    }
    bytes_ = after;
  }
}

TEST_F(TwoCopiesTest, EitherCopyAloneIsEnoughAfterWriteBoth) {
  ASSERT_TRUE(copies_.write_first(header_, crc_of));
  header_.mark = 9;
  ASSERT_TRUE(copies_.write_both(drained(), header_, crc_of));
  EXPECT_TRUE(read()->copies_agree);
  const auto whole = bytes_;
  for (size_t copy = 0; copy < 2; ++copy) {
    bytes_ = whole;
    copy_at(copy)[offsetof(Header, mark)] ^= std::byte{1};
    ASSERT_TRUE(read());
    EXPECT_EQ(read()->header.mark, 9u);
    EXPECT_EQ(read()->copy, 1 - copy);
    EXPECT_FALSE(read()->both_valid);
    EXPECT_FALSE(read()->copies_agree);
  }
  copy_at(0)[offsetof(Header, mark)] ^= std::byte{1};
  EXPECT_FALSE(read());
}

TEST_F(TwoCopiesTest, ACopyThatLiesWhereItsGenerationDoesNotBelongIsNoHeader) {
  ASSERT_TRUE(copies_.write_first(header_, crc_of));
  std::memcpy(copy_at(0), copy_at(1), sizeof(Header));
  std::memset(copy_at(1), 0, sizeof(Header));
  EXPECT_FALSE(read());
}

// A forger knows the checksum. A header that no writer could follow would end the program there.
TEST_F(TwoCopiesTest, AForgedGenerationThatNothingCanFollowIsNoHeader) {
  ASSERT_TRUE(copies_.write_first(header_, crc_of));
  Header forged = header_;
  for (const uint64_t generation : {UINT64_MAX - 1, UINT64_MAX - (uint64_t{1} << 32) + 1}) {
    forged.generation = generation;
    forged.crc = crc_of(forged);
    std::memcpy(copy_at(generation % 2), &forged, sizeof forged);
    const auto found = read();
    EXPECT_TRUE(!found || found->header.generation == 1);
  }
}

TEST_F(TwoCopiesTest, AnErrorOfTheCheckEndsTheReading) {
  ASSERT_TRUE(copies_.write_first(header_, crc_of));
  const auto found = copies_.read([](const Header& header) -> Result<bool> {
    if (header.magic == 7) return make_error(ErrorCode::kVersionMismatch, "of another release");
    return false;
  });
  EXPECT_EQ(found.code(), ErrorCode::kVersionMismatch);
}

// Else the next write would go over the copy that is still the only durable one.
TEST_F(TwoCopiesTest, AWriteThatFailsLeavesTheHeaderOfTheCallerAsItWas) {
  constexpr size_t kPages = 2;
  void* const pages =
      mmap(nullptr, kPages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  Memory file({static_cast<std::byte*>(pages), kPages * 4096}, {.domain = Domain::kNone});
  const TwoCopies<Header> copies(file, kOffset, kStride);
  Header header = header_;
  const auto durable = copies.write_first(header, crc_of);
  ASSERT_TRUE(durable);
  // msync of a hole in the address space is ENOMEM.
  file.flush(file.at(4096), 1);
  ASSERT_EQ(munmap(file.at(4096), 4096), 0);
  header.mark = 2;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(copies.write(*durable, header, crc_of).code(), ErrorCode::kIo);
    EXPECT_EQ(copies.write_both(*durable, header, crc_of).code(), ErrorCode::kIo);
    EXPECT_EQ(header.generation, 1u);
    Header newest;
    std::memcpy(&newest, file.at(kOffset + kStride), sizeof newest);
    EXPECT_EQ(newest.generation, 1u);
    EXPECT_EQ(newest.crc, crc_of(newest));
  }
  ASSERT_EQ(munmap(pages, 4096), 0);
}

using TwoCopiesDeathTest = TwoCopiesTest;

TEST_F(TwoCopiesDeathTest, AFirstWriteOverAHeaderIsRefused) {
  ASSERT_TRUE(copies_.write_first(header_, crc_of));
  EXPECT_DEATH((void)copies_.write_first(header_, crc_of), "may not be lost");
}

TEST_F(TwoCopiesDeathTest, CopiesThatShareALineAreRefused) {
  EXPECT_DEATH((TwoCopies<Header>(memory_, kOffset, 32)), "would reach the other one");
  EXPECT_DEATH((TwoCopies<Header>(memory_, kOffset + 8, kStride)), "would reach the other one");
}

TEST_F(TwoCopiesDeathTest, CopiesOutsideTheMemoryAreRefused) {
  EXPECT_DEATH((TwoCopies<Header>(memory_, 4096 - 64, kStride)), "are in the pool");
}

TEST_F(TwoCopiesDeathTest, TheGenerationNeverStartsAnew) {
  header_.generation = UINT64_MAX;
  EXPECT_DEATH((void)copies_.write(drained(), header_, crc_of), "start anew");
}

}  // namespace
}  // namespace pmstore::persist
