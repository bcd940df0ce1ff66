#include "log/entry.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/random.h"

namespace pmstore::log {
namespace {

using persist::PaddingRules;

constexpr uint64_t kData = 16 * 1024 - kRingHeaderBytes;
constexpr PaddingRules kNoRules{.xp_line = false, .one_sided_line = false, .two_sided_line = false};

RingPosition at(uint64_t tail_lsn, uint64_t start_lsn) {
  RingPosition position;
  position.data_bytes = kData;
  position.start_lsn = start_lsn;
  position.tail_lsn = tail_lsn;
  position.incarnation = 1;
  return position;
}

PlannedEntry plan(uint64_t tail, uint64_t payload, const PaddingRules& rules = {}) {
  auto planned = plan_entry(at(tail, tail), payload, true, rules);
  EXPECT_TRUE(planned) << planned.error().to_string();
  return planned.value_or(PlannedEntry{});
}

TEST(EntryPlan, SmallEntryTakesWholeLines) {
  const PlannedEntry entry = plan(64, 40);
  EXPECT_EQ(entry.pad_bytes, 0u);
  EXPECT_EQ(entry.lsn, 64u);
  EXPECT_EQ(entry.bytes, 128u);
}

TEST(EntryPlan, EntryOf256BytesStartsOnAnXpLine) {
  const PlannedEntry entry = plan(320, 224);
  EXPECT_EQ(entry.pad_lsn, 320u);
  EXPECT_EQ(entry.pad_bytes, 192u);
  EXPECT_EQ(entry.lsn, 512u);
  EXPECT_EQ(entry.bytes, 256u);
}

TEST(EntryPlan, EntryThatWouldCrossTheEndGoesToTheStart) {
  const PlannedEntry entry = plan(kData - 64, 100);
  EXPECT_EQ(entry.pad_bytes, 64u);
  EXPECT_EQ(entry.lsn, kData);
  EXPECT_EQ(entry.bytes, 192u);
}

TEST(EntryPlan, EntryThatEndsAtTheEndNeedsNoPad) {
  const PlannedEntry entry = plan(kData - 128, 96);
  EXPECT_EQ(entry.pad_bytes, 0u);
  EXPECT_EQ(entry.next_lsn(), kData);
}

TEST(EntryPlan, EachRuleCanBeSwitchedOffAlone) {
  PaddingRules rules;
  rules.one_sided_line = false;
  EXPECT_EQ(plan(8, 1, rules).lsn, 8u);
  EXPECT_EQ(plan(8, 1, rules).bytes, 40u);
  EXPECT_EQ(plan(8, 300, rules).lsn, 256u);
  EXPECT_EQ(plan_entry(at(8, 8), 1, false, rules)->bytes, 64u) << "two-sided has its own rule";
  rules = {.xp_line = false};
  EXPECT_EQ(plan(64, 300, rules).lsn, 64u);
  EXPECT_EQ(plan(64, 300, rules).bytes, 336u);
  EXPECT_EQ(plan(64, 1, rules).bytes, 64u);
}

TEST(EntryPlan, GapTooSmallForAPadEntryGrowsByAUnit) {
  const PlannedEntry entry = plan(256 - 24, 300);
  EXPECT_EQ(entry.pad_bytes, 24u + 256u);
  EXPECT_EQ(entry.lsn, 512u);
}

TEST(EntryPlan, RestTooSmallForAHeaderBelongsToTheEntry) {
  // 40 bytes of entry would leave 24 to the end.
  const PlannedEntry entry = plan(kData - 64, 8, kNoRules);
  EXPECT_EQ(entry.pad_bytes, 0u);
  EXPECT_EQ(entry.bytes, 64u);
  EXPECT_EQ(entry.next_lsn(), kData);
}

TEST(EntryPlan, FullRingIsBackPressureUntilTruncated) {
  EXPECT_EQ(plan_entry(at(kData - 64, 0), 33, true).code(), ErrorCode::kBackPressure);
  EXPECT_TRUE(plan_entry(at(kData - 64, 0), 32, true));
  EXPECT_TRUE(plan_entry(at(kData - 64, 128), 33, true));
}

TEST(EntryPlan, PayloadOverTheLargestIsTooLarge) {
  const auto planned = plan_entry(at(0, 0), max_payload_bytes(kData) + 1, true);
  ASSERT_FALSE(planned);
  EXPECT_EQ(planned.code(), ErrorCode::kTooLarge);
  EXPECT_NE(planned.error().message.find(std::to_string(max_payload_bytes(kData))),
            std::string::npos);
}

// What plan_entry() promises, for every place in a ring and for entries around every interesting
// size.
TEST(EntryPlan, HoldsItsPromisesEverywhere) {
  std::vector<uint64_t> sizes = {max_payload_bytes(kData), max_payload_bytes(kData) - 1};
  for (uint64_t payload = 0; payload < 600; payload += 7) sizes.push_back(payload);
  for (unsigned mask = 0; mask < 8; ++mask) {
    const PaddingRules rules{(mask & 1) != 0, (mask & 2) != 0, (mask & 4) != 0};
    for (uint64_t tail = 0; tail < kData; tail += 8) {
      if (!is_boundary(tail, kData)) continue;
      for (uint64_t payload : sizes) {
        const auto planned =
            plan_entry(at(tail + 5 * kData, tail + 5 * kData), payload, true, rules);
        ASSERT_TRUE(planned) << "an empty ring takes everything; tail " << tail << " " << payload;
        const uint64_t used = sizeof(EntryHeader) + payload;
        const uint64_t unit = persist::padding_unit(used, true, rules);
        ASSERT_EQ(planned->pad_lsn + planned->pad_bytes, planned->lsn);
        ASSERT_TRUE(planned->pad_bytes == 0 || planned->pad_bytes >= sizeof(EntryHeader));
        ASSERT_EQ(planned->lsn % unit, 0u);
        ASSERT_EQ(planned->bytes % kLsnUnit, 0u);
        ASSERT_TRUE(planned->bytes >= used && planned->bytes - used <= UINT8_MAX);
        ASSERT_LE(planned->bytes, entry_room(payload));
        ASSERT_LE(planned->lsn % kData + planned->bytes, kData) << "crosses the end";
        ASSERT_LE(planned->pad_lsn % kData + planned->pad_bytes, kData);
        ASSERT_TRUE(is_boundary(planned->next_lsn(), kData));
      }
    }
  }
}

TEST(EntryPlan, NoEntryEndsWhereNoneCouldBeRead) {
  for (uint64_t payload = 0; payload < 600; payload += 7) {
    uint64_t tail = (kMaxLsn / kData - 1) * kData;
    while (const auto placed = place_entry(at(tail, tail), payload, true)) {
      tail = placed->next_lsn();
      ASSERT_LT(tail, kMaxLsn);
      ASSERT_TRUE(is_boundary(tail, kData));
    }
    const auto planned = plan_entry(at(tail, tail), payload, true);
    ASSERT_FALSE(planned);
    EXPECT_EQ(planned.code(), ErrorCode::kFull);
    EXPECT_EQ(plan_entry(at(tail, tail - kData), payload, true).code(), ErrorCode::kFull);
  }
}

TEST(EntrySeal, PaddingIsZeroAndPayloadUntouched) {
  std::vector<std::byte> buffer(256, std::byte{0xee});
  const PlannedEntry planned = plan(0, 70);
  seal_entry(buffer, planned, at(0, 0), 70, 9);
  for (size_t i = 0; i < 70; ++i) ASSERT_EQ(buffer[sizeof(EntryHeader) + i], std::byte{0xee});
  for (size_t i = 102; i < 128; ++i) ASSERT_EQ(buffer[i], std::byte{0});
  for (size_t i = 128; i < 256; ++i) ASSERT_EQ(buffer[i], std::byte{0xee});
}

TEST(EntrySeal, ChecksumIsOfThisRingOnly) {
  std::vector<std::byte> buffer(128);
  RingPosition position = at(0, 0);
  position.salt = 77;
  seal_entry(buffer, plan(0, 70), position, 70, 9);
  EntryHeader header;
  std::memcpy(&header, buffer.data(), sizeof header);
  const auto payload = std::span(buffer).subspan(sizeof header, 70);
  EXPECT_EQ(header.crc, entry_crc(header, payload, 77));
  EXPECT_NE(header.crc, entry_crc(header, payload, 78));
}

TEST(EntrySealDeath, PlanForAnotherPayloadIsABug) {
  std::vector<std::byte> buffer(512);
  EXPECT_DEATH(seal_entry(buffer, plan(0, 70), at(0, 0), 300, 9), "another payload");
}

}  // namespace
}  // namespace pmstore::log
