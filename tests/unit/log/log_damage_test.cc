// Logs whose medium has lost something: only what is damaged is lost, it is said what, and nothing
// wrong is ever given.
#include <gtest/gtest.h>

#include "log/log_check.h"
#include "log/log_layout.h"
#include "tests/unit/log/log_pool.h"

namespace pmstore::log {
namespace {

constexpr uint64_t kGarbage = 0xbadbadbadbadbadull;

class LogDamage : public testing::Test {
 protected:
  explicit LogDamage(uint64_t area_bytes = kTestArea, uint64_t log_bytes = kTestLog)
      : log_bytes_(log_bytes), pool_(area_bytes) {}
  // In the log area.
  void damage(uint64_t offset) {
    std::memcpy(pool_.store().area().data() + offset, &kGarbage, sizeof kGarbage);
  }
  void damage_slot(uint64_t place, uint64_t copy) {
    damage(kLogSlotsOffset + (2 * place + copy) * kLogSlotBytes + 64);
  }
  void damage_entry(uint64_t id, uint64_t lsn) {
    std::memcpy(pool_.data_of(id, lsn) + sizeof(EntryHeader), &kGarbage, sizeof kGarbage);
  }
  std::vector<std::string> problems() {
    const auto report = check_logs(pool_.pool());
    EXPECT_TRUE(report) << report.error().to_string();
    return report ? report->problems : std::vector<std::string>{};
  }
  std::vector<uint64_t> indexes(std::string_view name) {
    std::vector<uint64_t> found;
    for (const TestEntry& entry : entries_of(pool_.store(), name)) {
      EXPECT_EQ(entry.payload, text_of(entry.index, entry.payload.size()));
      found.push_back(entry.index);
    }
    return found;
  }
  // Entries of 100 bytes, 192 in the log each.
  uint64_t make_log(std::string_view name, uint64_t entries) {
    const uint64_t id = pool_.make(name, FullPolicy::kBackPressure, log_bytes_);
    for (uint64_t i = 1; i <= entries; ++i) EXPECT_TRUE(pool_.append(id, {text_of(i, 100)}));
    return id;
  }

  uint64_t log_bytes_;
  LogPool pool_;
};

// So large that a log does not know by heart where each of a few entries is.
class LogDamagedSince : public LogDamage {
 protected:
  LogDamagedSince() : LogDamage(1u << 20, 400 * 1024) {}
};

TEST_F(LogDamage, OneCopyOfTheAreaHeaderIsEnough) {
  make_log("a", 3);
  for (const uint64_t copy : {0, 1}) {
    const uint64_t epoch = pool_.store().epoch();
    damage(copy * kLogAreaCopyStride + 8);
    pool_.reopen();
    EXPECT_EQ(indexes("a").size(), 3u);
    EXPECT_GT(pool_.store().epoch(), epoch);
  }
  damage(8);
  damage(kLogAreaCopyStride + 8);
  pool_.close_store();
  EXPECT_EQ(LogStore::open(pool_.pool()).code(), ErrorCode::kBadPool);
  EXPECT_EQ(check_logs(pool_.pool()).code(), ErrorCode::kBadPool);
}

TEST_F(LogDamage, OneCopyOfAPlaceIsEnough) {
  const uint64_t id = make_log("a", 3);
  for (const uint64_t copy : {0, 1, 0}) {
    damage_slot(0, copy);
    pool_.reopen();
    EXPECT_EQ(indexes("a").size(), 3u);
    EXPECT_EQ(pool_.store().find("a")->id, id);
    EXPECT_TRUE(problems().empty());
  }
  ASSERT_TRUE(pool_.store().seal(id));
  damage_slot(0, 1);
  pool_.reopen();
  EXPECT_TRUE(pool_.store().find("a")->sealed);
}

TEST_F(LogDamage, LostPlaceLosesItsLogOnly) {
  make_log("a", 3);
  const uint64_t b = make_log("b", 4);
  damage_slot(1, 0);
  damage_slot(1, 1);
  pool_.reopen();
  EXPECT_EQ(indexes("a").size(), 3u);
  EXPECT_EQ(pool_.store().find("b").code(), ErrorCode::kNotFound);
  EXPECT_EQ(pool_.store().damaged_places(), 1u);
  EXPECT_EQ(problems().size(), 1u);
  // The lost place may have had the highest id.
  const uint64_t c = pool_.make("c");
  EXPECT_GT(c, b);
  pool_.reopen();
  EXPECT_EQ(pool_.store().find("c")->id, c);
  EXPECT_GT(pool_.make("d"), c);
}

TEST_F(LogDamage, OneCopyOfARingsHeaderIsEnough) {
  const uint64_t id = make_log("a", 5);
  const uint64_t region = pool_.store().where(id)->region_offset;
  for (const uint64_t copy : {0, 1, 1, 0}) {
    ASSERT_TRUE(pool_.store().trim_below_index(id, pool_.store().info(id)->next_index - 4));
    damage(region + copy * kRingHeaderCopyStride + 8);
    pool_.reopen();
    EXPECT_EQ(indexes("a").size(), 4u);
    EXPECT_TRUE(problems().empty());
    ASSERT_TRUE(pool_.append(id, {text_of(pool_.store().info(id)->next_index, 100)}));
  }
}

TEST_F(LogDamage, LostRingLosesItsLogOnly) {
  const uint64_t a = make_log("a", 3);
  make_log("b", 4);
  const uint64_t region = pool_.store().where(a)->region_offset;
  damage(region + 8);
  damage(region + kRingHeaderCopyStride + 8);
  pool_.reopen();
  const auto info = pool_.store().find("a");
  ASSERT_TRUE(info);
  EXPECT_TRUE(is_lost(*info));
  EXPECT_EQ(pool_.words_of(a).id, 0u);
  EXPECT_EQ(pool_.append(a, {"x"}).code(), ErrorCode::kDamaged);
  EXPECT_EQ(pool_.store().trim_below_index(a, 1).code(), ErrorCode::kDamaged);
  EXPECT_EQ(pool_.store().acquire(a, 1).code(), ErrorCode::kDamaged);
  EXPECT_EQ(pool_.store().seal(a).code(), ErrorCode::kDamaged);
  EXPECT_EQ(problems().size(), 1u);
  EXPECT_EQ(indexes("b").size(), 4u);
  ASSERT_TRUE(pool_.store().erase(a));
  EXPECT_TRUE(problems().empty());
  make_log("a", 1);
  EXPECT_EQ(indexes("a").size(), 1u);
}

TEST_F(LogDamage, DamagedEntryIsListedAndTheOthersStay) {
  const uint64_t id = make_log("a", 6);
  damage_entry(id, 2 * 192);
  pool_.reopen();
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(pool_.store().info(id)->damaged, (std::vector<DamagedRange>{{384, 576}}));
    EXPECT_EQ(indexes("a"), (std::vector<uint64_t>{1, 2, 4, 5, 6}));
    EXPECT_EQ(problems().size(), 1u);
    EXPECT_EQ(pool_.store().info(id)->next_index, 7u);
    pool_.reopen();
  }
  ASSERT_TRUE(pool_.append(id, {text_of(7, 100)}));
  EXPECT_EQ(indexes("a").back(), 7u);
  // Trimming goes over it.
  EXPECT_EQ(*pool_.store().trim_below_index(id, 5), 768u);
  EXPECT_TRUE(pool_.store().info(id)->damaged.empty());
  pool_.reopen();
  EXPECT_EQ(indexes("a"), (std::vector<uint64_t>{5, 6, 7}));
  EXPECT_TRUE(problems().empty());
}

TEST_F(LogDamage, TrimCanStopBehindADamagedRange) {
  const uint64_t id = make_log("a", 6);
  damage_entry(id, 2 * 192);
  pool_.reopen();
  EXPECT_EQ(pool_.store().trim(id, 384).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(*pool_.store().trim_below_index(id, 3), 576u);
  EXPECT_EQ(indexes("a"), (std::vector<uint64_t>{4, 5, 6}));
}

TEST_F(LogDamage, NeighboursAreOneRange) {
  const uint64_t id = make_log("a", 6);
  damage_entry(id, 1 * 192);
  damage_entry(id, 2 * 192);
  damage_entry(id, 4 * 192);
  pool_.reopen();
  EXPECT_EQ(pool_.store().info(id)->damaged, (std::vector<DamagedRange>{{192, 576}, {768, 960}}));
  EXPECT_EQ(indexes("a"), (std::vector<uint64_t>{1, 4, 6}));
}

// Of the last entries, nothing later says that they were durable; they look like a torn tail.
TEST_F(LogDamage, NewestEntryOfARunLooksTorn) {
  const uint64_t id = make_log("a", 4);
  damage_entry(id, 3 * 192);
  pool_.reopen();
  EXPECT_TRUE(pool_.store().info(id)->damaged.empty());
  EXPECT_EQ(indexes("a"), (std::vector<uint64_t>{1, 2, 3}));
}

TEST_F(LogDamage, NewestEntryOfAClosedLogIsMissed) {
  const uint64_t id = make_log("a", 4);
  ASSERT_TRUE(pool_.store().close());
  damage_entry(id, 3 * 192);
  pool_.reopen();
  EXPECT_EQ(pool_.store().info(id)->damaged, (std::vector<DamagedRange>{{576, 768}}));
  EXPECT_EQ(indexes("a"), (std::vector<uint64_t>{1, 2, 3}));
  // How many were lost is not known any more; none of their numbers comes again.
  EXPECT_GE(pool_.store().info(id)->next_index, 5u);
  const uint64_t next = pool_.store().info(id)->next_index;
  ASSERT_TRUE(pool_.append(id, {text_of(next, 100)}));
  pool_.reopen();
  EXPECT_EQ(indexes("a"), (std::vector<uint64_t>{1, 2, 3, next}));
}

TEST_F(LogDamage, LaterEntryTellsDamageFromATornTail) {
  const uint64_t id = pool_.make("a");
  ASSERT_TRUE(pool_.append(id, {text_of(1, 100)}));
  // Two in flight: the second says only that the first entry was durable.
  ASSERT_TRUE(pool_.append(id, {text_of(2, 100), text_of(3, 100)}));
  damage_entry(id, 192);
  pool_.reopen();
  EXPECT_TRUE(pool_.store().info(id)->damaged.empty());
  EXPECT_EQ(indexes("a"), (std::vector<uint64_t>{1}));
}

TEST_F(LogDamage, EndOfASealedLogIsMissed) {
  const uint64_t id = make_log("a", 4);
  ASSERT_TRUE(pool_.store().seal(id));
  damage_entry(id, 3 * 192);
  pool_.reopen();
  EXPECT_EQ(pool_.store().info(id)->damaged, (std::vector<DamagedRange>{{576, 768}}));
  EXPECT_EQ(pool_.store().info(id)->tail_lsn, 768u);
  EXPECT_EQ(indexes("a"), (std::vector<uint64_t>{1, 2, 3}));
}

TEST_F(LogDamage, WholeLogMayBeDamaged) {
  const uint64_t id = make_log("a", 40);
  ASSERT_TRUE(pool_.store().close());
  std::memset(pool_.data_of(id, 0), 0x5a, kTestLog);
  pool_.reopen();
  EXPECT_EQ(pool_.store().info(id)->damaged, (std::vector<DamagedRange>{{0, 40 * 192}}));
  EXPECT_TRUE(indexes("a").empty());
  EXPECT_GT(pool_.store().info(id)->next_index, 40u);
}

TEST_F(LogDamage, ListOfDamageIsBounded) {
  LogPool pool(1u << 20);
  const uint64_t id = pool.make("a", FullPolicy::kBackPressure, 800 * 1024);
  constexpr uint64_t kEntries = 6000;
  for (uint64_t i = 1; i <= kEntries; ++i) ASSERT_TRUE(pool.append(id, {"x"}));
  ASSERT_TRUE(pool.store().close());
  for (uint64_t i = 0; i < kEntries; i += 2) {
    std::memcpy(pool.data_of(id, i * 64) + sizeof(EntryHeader), &kGarbage, sizeof kGarbage);
  }
  pool.reopen();
  const auto info = pool.store().info(id);
  EXPECT_EQ(info->damaged.size(), 1024u);
  EXPECT_EQ(info->damaged[1022], (DamagedRange{2044 * 64, 2045 * 64}));
  EXPECT_EQ(info->damaged[1023].to_lsn, (kEntries - 1) * 64);
  EXPECT_EQ(info->next_index, kEntries + 1);
}

// A producer published its tail; what is below it and not whole when it is gone is damage.
TEST_F(LogDamage, PublishedEntriesOfAProducerAreMissed) {
  const uint64_t id = make_log("a", 4);
  auto grant = pool_.store().acquire(id, 1);
  ASSERT_TRUE(grant);
  const uint64_t tail = grant->position.tail_lsn;
  *grant->tail_word = tail + 192;
  ASSERT_TRUE(pool_.store().release(id));
  EXPECT_EQ(pool_.store().info(id)->damaged, (std::vector<DamagedRange>{{tail, tail + 192}}));
  const uint64_t next = pool_.store().info(id)->next_index;
  ASSERT_TRUE(pool_.append(id, {text_of(next, 100)}));
  EXPECT_EQ(indexes("a"), (std::vector<uint64_t>{1, 2, 3, 4, next}));
}

// Nobody has looked at the entry again before the trim.
TEST_F(LogDamagedSince, TrimOverTheDamageKeepsWhatIsBehindIt) {
  for (const bool by_lsn : {false, true}) {
    const std::string name = by_lsn ? "by lsn" : "by index";
    const uint64_t id = make_log(by_lsn ? "a" : "b", 10);
    damage_entry(id, 2 * 192);
    const auto trimmed =
        by_lsn ? pool_.store().trim(id, 5 * 192) : pool_.store().trim_below_index(id, 6);
    ASSERT_TRUE(trimmed) << name << ": " << trimmed.error().to_string();
    EXPECT_EQ(*trimmed, 5u * 192) << name;
    EXPECT_EQ(indexes(by_lsn ? "a" : "b"), (std::vector<uint64_t>{6, 7, 8, 9, 10})) << name;
  }
  pool_.reopen();
  EXPECT_EQ(indexes("b"), (std::vector<uint64_t>{6, 7, 8, 9, 10}));
  EXPECT_TRUE(problems().empty());
}

TEST_F(LogDamagedSince, TrimToWhatIsDamagedGoesToTheNextEntry) {
  const uint64_t id = make_log("a", 10);
  damage_entry(id, 2 * 192);
  damage_entry(id, 3 * 192);
  EXPECT_EQ(pool_.store().trim(id, 2 * 192).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(*pool_.store().trim_below_index(id, 3), 4u * 192);
  EXPECT_EQ(indexes("a"), (std::vector<uint64_t>{5, 6, 7, 8, 9, 10}));
}

// An entry whose bytes look like the beginnings of many large ones makes a search waste much.
TEST_F(LogDamagedSince, TrimBehindDamageThatIsTooLongToSearchDropsOnlyWhatIsBeforeIt) {
  const uint64_t id = make_log("a", 2);
  std::string payload(600, 'x');
  constexpr uint64_t kLargeAt = 512;  // behind a pad
  constexpr uint64_t kPayloadAt = kLargeAt + sizeof(EntryHeader) + sizeof(LogEntryPrefix);
  for (uint64_t at = 0; at + sizeof(EntryHeader) <= payload.size(); at += sizeof(EntryHeader)) {
    EntryHeader header{};
    header.magic = kEntryMagic;
    header.lsn = kPayloadAt + at;
    header.payload_bytes = UINT32_MAX;
    std::memcpy(payload.data() + at, &header, sizeof header);
  }
  ASSERT_EQ(pool_.append(id, {payload}).value().first.lsn, kLargeAt);
  for (uint64_t i = 4; i <= 8; ++i) ASSERT_TRUE(pool_.append(id, {text_of(i, 100)}));
  std::byte* const large = pool_.data_of(id, kLargeAt);
  large[offsetof(EntryHeader, crc)] ^= std::byte{1};
  EXPECT_EQ(*pool_.store().trim_below_index(id, 5), 192u);
  large[offsetof(EntryHeader, crc)] ^= std::byte{1};
  EXPECT_EQ(entries_of(pool_.store(), "a").size(), 7u) << "what is behind the damage is there";
}

}  // namespace
}  // namespace pmstore::log
