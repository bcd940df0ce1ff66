#include "log/ring.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/checksum.h"
#include "base/random.h"
#include "persist/memory.h"
#include "tests/crash/crash_image.h"

namespace pmstore::log {
namespace {

constexpr uint64_t kOffset = 1024;
constexpr uint64_t kRegionBytes = 16 * 1024;
constexpr uint64_t kData = kRegionBytes - kRingHeaderBytes;
constexpr uint32_t kRegionSalt = 0x5a17;

struct Read {
  uint64_t sequence;
  std::string payload;
  uint32_t incarnation = 0;
  uint64_t lsn = 0;
  bool operator==(const Read& other) const {
    return sequence == other.sequence && payload == other.payload;
  }
};
void PrintTo(const Read& read, std::ostream* out) {
  *out << read.sequence << ":" << read.payload.size() << " bytes at " << read.lsn;
}

std::string text_of(uint64_t sequence, size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>('a' + (sequence * 31 + i) % 26);
  return text;
}

class RingTest : public testing::Test {
 protected:
  Result<uint64_t> append(Ring& ring, uint64_t sequence, size_t bytes) {
    const std::string text = text_of(sequence, bytes);
    auto lsn = ring.append(sequence, std::as_bytes(std::span(text)));
    if (lsn) expected_.push_back({sequence, text});
    return lsn;
  }
  void must_append(Ring& ring, uint64_t sequence, size_t bytes) {
    auto lsn = append(ring, sequence, bytes);
    ASSERT_TRUE(lsn) << lsn.error().to_string();
  }
  static std::vector<Read> walk(Ring& ring, bool damaged = false) {
    std::vector<Read> found;
    const Status walked = ring.walk([&](const EntryView& entry) {
      found.push_back(
          {entry.sequence,
           std::string(reinterpret_cast<const char*>(entry.payload.data()), entry.payload.size()),
           entry.incarnation, entry.lsn});
    });
    EXPECT_EQ(walked.has_value(), !damaged);
    if (!walked) {
      EXPECT_EQ(walked.code(), ErrorCode::kBadPool);
    }
    return found;
  }
  Ring format(uint32_t salt = kRegionSalt) {
    auto ring = Ring::format(memory_, kOffset, kRegionBytes, salt);
    EXPECT_TRUE(ring) << ring.error().to_string();
    return std::move(*ring);
  }
  Ring reopen() {
    auto ring = Ring::open(memory_, kOffset, kRegionBytes, kRegionSalt);
    EXPECT_TRUE(ring) << ring.error().to_string();
    return std::move(*ring);
  }
  std::byte* data(uint64_t lsn) { return memory_.at(kOffset + kRingHeaderBytes + lsn % kData); }
  void damage(std::byte* where) { *where ^= std::byte{0x10}; }
  std::byte* header_copy(size_t copy) { return memory_.at(kOffset + copy * kRingHeaderCopyStride); }

  crash::PageBytes region_{kOffset + kRegionBytes + 4096};
  persist::Memory memory_{region_.bytes(), {.domain = persist::Domain::kCpuCache}};
  std::vector<Read> expected_;
};

TEST_F(RingTest, NewRingIsEmptyAndTakesEntriesAtOnce) {
  Ring ring = format();
  EXPECT_EQ(ring.position().free_bytes(), kData);
  EXPECT_EQ(ring.owner(), 0u);
  EXPECT_EQ(ring.bytes(), kRegionBytes);
  must_append(ring, 1, 10);
  Ring again = reopen();
  EXPECT_EQ(walk(again), expected_);
}

TEST_F(RingTest, EntriesOfAllSizesComeBackInOrder) {
  Ring ring = format();
  for (size_t bytes : {0u, 1u, 31u, 32u, 33u, 223u, 224u, 225u, 1000u, 7u, 480u}) {
    must_append(ring, bytes, bytes);
  }
  Ring again = reopen();
  EXPECT_EQ(walk(again), expected_);
  EXPECT_EQ(again.position().tail_lsn, ring.position().tail_lsn);
}

TEST_F(RingTest, ManyLapsOfRandomEntriesUnderAllRulesComeBack) {
  Random random(7);
  Ring ring = format();
  for (uint64_t sequence = 1; sequence < 3000; ++sequence) {
    ring.set_padding({random.below(2) == 0, random.below(2) == 0, random.below(2) == 0});
    const size_t bytes = random.below(random.below(20) == 0 ? max_payload_bytes(kData) + 1 : 600);
    auto lsn = append(ring, sequence, bytes);
    while (!lsn) {
      ASSERT_EQ(lsn.code(), ErrorCode::kBackPressure);
      Ring again = reopen();
      const auto found = walk(again);
      ASSERT_EQ(found, expected_) << "before " << sequence;
      const size_t keep = random.below(found.size());
      const uint64_t mark = keep == 0 ? ring.position().tail_lsn : found[found.size() - keep].lsn;
      ASSERT_TRUE(
          ring.truncate(*memory_.drain(), mark, found[found.size() - keep - 1].sequence + 1));
      expected_.erase(expected_.begin(), expected_.end() - static_cast<ptrdiff_t>(keep));
      lsn = append(ring, sequence, bytes);
    }
  }
  EXPECT_GT(ring.position().tail_lsn, 20 * kData);
}

TEST_F(RingTest, LargestEntryFitsIntoEmptyRingWhereverItsTailIs) {
  Ring ring = format();
  for (uint64_t sequence = 1; sequence < 300; ++sequence) {
    must_append(ring, sequence, 40);
    must_append(ring, sequence, max_payload_bytes(kData));
    ASSERT_TRUE(ring.truncate(*memory_.drain(), ring.position().tail_lsn, sequence + 1));
  }
  EXPECT_EQ(append(ring, 1, max_payload_bytes(kData) + 1).code(), ErrorCode::kTooLarge);
}

TEST_F(RingTest, FullRingRefusesAndKeepsWhatItHas) {
  Ring ring = format();
  uint64_t sequence = 0;
  while (append(ring, ++sequence, 100)) {
  }
  EXPECT_EQ(append(ring, sequence, 100).code(), ErrorCode::kBackPressure);
  Ring again = reopen();
  EXPECT_EQ(walk(again), expected_);
}

TEST_F(RingTest, TornTailIsCutOff) {
  Ring ring = format();
  must_append(ring, 1, 100);
  must_append(ring, 2, 100);
  must_append(ring, 3, 100);
  const uint64_t end = ring.position().tail_lsn;
  damage(data(end - 192 + 131));  // the last byte of the third payload
  expected_.pop_back();
  Ring again = reopen();
  EXPECT_EQ(walk(again), expected_);
  EXPECT_EQ(again.position().tail_lsn, end - 192);
}

TEST_F(RingTest, StaleEntryBehindATornOneNeverComesBack) {
  Ring ring = format();
  must_append(ring, 1, 100);
  const auto torn = append(ring, 2, 100);
  must_append(ring, 3, 100);  // landed, though the one before did not
  damage(data(*torn));
  Ring second = reopen();
  ASSERT_EQ(walk(second).size(), 1u);
  ASSERT_TRUE(second.take_over(0));
  expected_.resize(1);
  {
    Ring again = reopen();
    EXPECT_EQ(walk(again), expected_) << "the torn one stays torn";
  }
  must_append(second, 4, 100);  // exactly in front of the stale one
  Ring third = reopen();
  EXPECT_EQ(walk(third), expected_);
  ASSERT_TRUE(third.take_over(0));
  EXPECT_EQ(walk(third), expected_);
}

TEST_F(RingTest, TornEntryThatHealsAfterATakeOverStaysOut) {
  Ring ring = format();
  must_append(ring, 1, 100);
  const auto torn = append(ring, 2, 100);
  damage(data(*torn));
  Ring second = reopen();
  walk(second);
  ASSERT_TRUE(second.take_over(0));
  damage(data(*torn));  // back to what it was
  expected_.resize(1);
  Ring third = reopen();
  EXPECT_EQ(walk(third), expected_);
  EXPECT_FALSE(third.entry_at(*torn));
}

TEST_F(RingTest, SameOwnerKeepsItsEntriesAcrossIncarnations) {
  Ring ring = format();
  walk(ring);
  ASSERT_TRUE(ring.take_over(42));
  must_append(ring, 1, 10);
  for (uint64_t sequence = 2; sequence < 6; ++sequence) {
    Ring next = reopen();
    EXPECT_EQ(next.owner(), 42u);
    EXPECT_EQ(walk(next), expected_);
    ASSERT_TRUE(next.take_over(42));
    must_append(next, sequence, 10);
  }
  Ring last = reopen();
  const auto found = walk(last);
  EXPECT_EQ(found, expected_);
  for (size_t i = 1; i < found.size(); ++i) {
    EXPECT_EQ(found[i].incarnation, found[i - 1].incarnation + 1);
  }
}

TEST_F(RingTest, OtherOwnerFindsItEmpty) {
  Ring ring = format();
  ASSERT_TRUE(ring.take_over(42));
  must_append(ring, 1, 10);
  must_append(ring, 2, 10);
  ASSERT_TRUE(ring.truncate(*memory_.drain(), 64, 2));
  EXPECT_EQ(ring.expired_below_sequence(), 2u);
  walk(ring);
  ASSERT_TRUE(ring.take_over(43));
  EXPECT_EQ(ring.position().free_bytes(), kData);
  EXPECT_EQ(ring.expired_below_sequence(), 0u);
  Ring again = reopen();
  EXPECT_EQ(again.owner(), 43u);
  EXPECT_EQ(again.expired_below_sequence(), 0u);
  EXPECT_TRUE(walk(again).empty());
}

TEST_F(RingTest, DamageBeforeThePresentIncarnationIsReported) {
  Ring ring = format();
  must_append(ring, 1, 10);
  must_append(ring, 2, 10);
  walk(ring);
  ASSERT_TRUE(ring.take_over(0));
  must_append(ring, 3, 10);
  damage(data(64 + 40));
  Ring again = reopen();
  EXPECT_EQ(walk(again, true).size(), 1u);
}

TEST_F(RingTest, TruncatedEntriesStayAwayAndTheirSequencesAreSaid) {
  Ring ring = format();
  must_append(ring, 1, 10);
  must_append(ring, 2, 10);
  must_append(ring, 3, 300);
  ASSERT_TRUE(ring.truncate(*memory_.drain(), 128, 3));
  expected_.erase(expected_.begin(), expected_.begin() + 2);
  Ring again = reopen();
  EXPECT_EQ(again.position().start_lsn, 128u);
  EXPECT_EQ(again.expired_below_sequence(), 3u);
  EXPECT_EQ(walk(again), expected_) << "a mark may lie before a pad entry";
}

TEST_F(RingTest, MarksThatGoBackOrPassTheTailAreRefused) {
  Ring ring = format();
  must_append(ring, 1, 10);
  must_append(ring, 2, 10);
  ASSERT_TRUE(ring.truncate(*memory_.drain(), 64, 2));
  EXPECT_EQ(ring.truncate(*memory_.drain(), 0, 2).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(ring.truncate(*memory_.drain(), 192, 3).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(ring.truncate(*memory_.drain(), 65, 3).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(ring.truncate(*memory_.drain(), 128, 1).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(ring.position().start_lsn, 64u);
}

TEST_F(RingTest, TailOfARemoteAppenderIsChecked) {
  Ring ring = format();
  EXPECT_TRUE(ring.note_tail(128));
  EXPECT_EQ(ring.position().tail_lsn, 128u);
  EXPECT_TRUE(ring.note_tail(128));
  EXPECT_EQ(ring.note_tail(64).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(ring.note_tail(130).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(ring.note_tail(kData + 64).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(ring.note_tail(kData - 8).code(), ErrorCode::kInvalidArgument)
      << "no header fits behind";
  EXPECT_EQ(ring.note_tail(UINT64_MAX - 63).code(), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(ring.note_tail(kData));
}

TEST_F(RingTest, OneEntryCanBeLookedAt) {
  Ring ring = format();
  must_append(ring, 1, 10);
  const auto lsn = append(ring, 2, 300);
  auto entry = ring.entry_at(*lsn);
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->sequence, 2u);
  EXPECT_EQ(entry->payload.size(), 300u);
  EXPECT_EQ(entry->next_lsn, ring.position().tail_lsn);
  EXPECT_EQ(ring.entry_at(64).code(), ErrorCode::kBadPool) << "a pad entry is none";
  EXPECT_EQ(ring.entry_at(3).code(), ErrorCode::kBadPool);
  EXPECT_EQ(ring.entry_at(entry->next_lsn).code(), ErrorCode::kBadPool);
  EXPECT_EQ(ring.entry_at(UINT64_MAX).code(), ErrorCode::kBadPool);
  ASSERT_TRUE(ring.truncate(*memory_.drain(), *lsn, 2));
  EXPECT_EQ(ring.entry_at(0).code(), ErrorCode::kBadPool) << "truncated";
  EXPECT_TRUE(ring.entry_at(*lsn));
}

TEST_F(RingTest, EntryWrittenElsewhereIsSeenBeforeItsTailIsNoted) {
  Ring ring = format();
  const RingPosition position = ring.position();
  std::vector<std::byte> buffer(entry_room(5));
  const auto plan = plan_entry(position, 5, true);
  seal_entry(buffer, *plan, position, 5, 11);
  memory_.store(data(plan->lsn), buffer.data(), plan->bytes);
  auto entry = ring.entry_at(plan->lsn);
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->sequence, 11u);
  EXPECT_EQ(ring.position().tail_lsn, 0u);
}

TEST_F(RingTest, TornHeaderLeavesTheOneBefore) {
  Ring ring = format();  // generation 1
  must_append(ring, 1, 10);
  ASSERT_TRUE(ring.truncate(*memory_.drain(), 64, 2));  // generation 2, copy 0
  damage(header_copy(0) + 40);
  Ring again = reopen();
  EXPECT_EQ(again.position().start_lsn, 0u);
  EXPECT_EQ(walk(again), expected_);
  ASSERT_TRUE(again.take_over(0)) << "the torn copy is the next one to be written";
  Ring third = reopen();
  EXPECT_EQ(third.position().incarnation, 2u);
}

TEST_F(RingTest, NoValidHeaderIsABadPoolAndSaysWhere) {
  {
    Ring ring = format();
    walk(ring);
    ASSERT_TRUE(ring.take_over(1));
  }
  damage(header_copy(0) + 9);
  damage(header_copy(1) + 9);
  auto opened = Ring::open(memory_, kOffset, kRegionBytes, kRegionSalt);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.code(), ErrorCode::kBadPool);
  EXPECT_NE(opened.error().message.find("offset 1024"), std::string::npos);
}

TEST_F(RingTest, RingOfAnotherPoolIsNotOpened) {
  format();
  EXPECT_EQ(Ring::open(memory_, kOffset, kRegionBytes, kRegionSalt + 1).code(),
            ErrorCode::kBadPool);
  EXPECT_EQ(Ring::open(memory_, kOffset, kRegionBytes + 256, kRegionSalt).code(),
            ErrorCode::kBadPool)
      << "of another size";
}

TEST_F(RingTest, OtherFormatVersionIsSaid) {
  format();
  RingHeader header;
  std::memcpy(&header, header_copy(1), sizeof header);
  header.version = 9;
  header.crc = base::crc32c(std::as_bytes(std::span(&header, 1)).subspan(8), kRegionSalt);
  std::memcpy(header_copy(1), &header, sizeof header);
  auto opened = Ring::open(memory_, kOffset, kRegionBytes, kRegionSalt);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.code(), ErrorCode::kVersionMismatch);
  EXPECT_NE(opened.error().message.find("version 9"), std::string::npos);
}

TEST_F(RingTest, FormattingAgainLeavesNoOldEntries) {
  Ring ring = format();
  while (append(ring, 1, 30)) {
  }
  expected_.clear();
  Ring second = format();
  for (uint64_t sequence = 2; sequence < 10; ++sequence) {
    must_append(second, sequence, 30);
    Ring again = reopen();
    ASSERT_EQ(walk(again), expected_);
  }
}

TEST_F(RingTest, FormattingFreshMemoryWritesOnlyTheHeader) {
  format();
  const auto everything = memory_.mapping();
  for (size_t i = kOffset + kRingHeaderBytes; i < everything.size(); ++i) {
    ASSERT_EQ(everything[i], std::byte{0});
  }
}

TEST_F(RingTest, PlacesWhereNoRingCanBeAreRefused) {
  EXPECT_EQ(Ring::format(memory_, 128, kRegionBytes, 1).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(Ring::format(memory_, 0, kMinRingBytes - 256, 1).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(Ring::format(memory_, 0, kRegionBytes + 64, 1).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(Ring::format(memory_, kOffset, 1u << 20, 1).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(Ring::open(memory_, UINT64_MAX - 255, kRegionBytes, 1).code(),
            ErrorCode::kInvalidArgument);
}

// docs/log.md shows these bytes.
TEST_F(RingTest, ExampleOfTheDocumentIsRight) {
  crash::PageBytes region(kRegionBytes);
  persist::Memory memory(region.bytes(), {.domain = persist::Domain::kCpuCache});
  Ring ring = Ring::format(memory, 0, kRegionBytes, 0x1234).value();
  ASSERT_TRUE(ring.take_over(42));
  const std::string texts[] = {"hello", std::string(300, 'x'), std::string(100, 'y')};
  for (uint64_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(ring.append(i + 1, std::as_bytes(std::span(texts[i]))));
  }
  EXPECT_EQ(ring.position().tail_lsn, 960u);
  EXPECT_EQ(max_payload_bytes(kData), 7648u);
  const auto hex = [&](size_t offset) {
    std::string text;
    for (size_t i = 0; i < 16; ++i) {
      text += fmt::format("{:02x}", static_cast<unsigned>(region.data()[offset + i]));
      if (i % 4 == 3 && i < 15) text += ' ';
    }
    return text;
  };
  EXPECT_EQ(hex(0), "50524e47 82d201de 01000000 02000000");
  EXPECT_EQ(hex(16), "02000000 00000000 2a000000 00000000");
  EXPECT_EQ(hex(48), "003f0000 00000000 00000000 00000000");
  EXPECT_EQ(hex(128), "50524e47 b3bbb298 01000000 01000000");
  EXPECT_EQ(hex(256), "ee3b00eb 454e001b 00000000 00000000");
  EXPECT_EQ(hex(272), "05000000 02000000 01000000 00000000");
  EXPECT_EQ(hex(320), "5d87f451 50410000 40000000 00000000");
  EXPECT_EQ(hex(336), "a0000000 02000000 00000000 00000000");
  EXPECT_EQ(hex(512), "0523d632 454e00b4 00010000 00000000");
  EXPECT_EQ(hex(528), "2c010000 02000000 02000000 00000000");
}

TEST_F(RingTest, LostLastHeaderIsDamageNotAnOlderState) {
  Ring ring = format();
  must_append(ring, 1, 10);
  walk(ring);
  ASSERT_TRUE(ring.take_over(0));  // generation 2, copy 0
  must_append(ring, 2, 10);
  damage(header_copy(0) + 40);
  Ring again = reopen();
  EXPECT_EQ(walk(again, true).size(), 1u);
}

// Who may write into the data area may write anything there, with a right checksum too. The owner
// that has written the header knows that there is no later one.
TEST_F(RingTest, ForgedEntriesOfALaterIncarnationOrLapAreErasedByTheirOwner) {
  for (const bool later_lap : {false, true}) {
    SCOPED_TRACE(later_lap);
    expected_.clear();
    Ring ring = format();
    walk(ring);
    ASSERT_TRUE(ring.take_over(1));
    must_append(ring, 1, 10);
    RingPosition forged = ring.position();
    if (later_lap) {
      forged.start_lsn += kData;
      forged.tail_lsn += kData;
    } else {
      forged.incarnation += 7;
    }
    std::byte entry[64] = {};
    const PlannedEntry plan = plan_entry(forged, 10, true).value();
    seal_entry(entry, plan, forged, 10, 2);
    std::memcpy(data(plan.lsn), entry, sizeof entry);
    {
      Ring stranger = reopen();
      EXPECT_EQ(walk(stranger, true), expected_) << "it may be that a header is lost";
    }
    EXPECT_EQ(walk(ring), expected_);
    Ring again = reopen();
    EXPECT_EQ(walk(again), expected_);
    ASSERT_TRUE(again.take_over(1));
    must_append(again, 3, 10);
    Ring third = reopen();
    EXPECT_EQ(walk(third), expected_);
  }
}

using RingDeathTest = RingTest;

TEST_F(RingDeathTest, AppendAfterAWalkWithoutTakingOverIsABug) {
  format();
  Ring ring = reopen();
  EXPECT_DEATH((void)ring.append(1, {}), "only a new incarnation may append");
  walk(ring);
  EXPECT_DEATH((void)ring.append(1, {}), "only a new incarnation may append");
}

TEST_F(RingDeathTest, TakingOverWithoutAWalkIsABug) {
  Ring ring = format();
  must_append(ring, 1, 10);
  EXPECT_DEATH((void)ring.take_over(1), "known only after a walk");
}

}  // namespace
}  // namespace pmstore::log
