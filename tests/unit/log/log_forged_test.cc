// A log area with headers and slots that have right checksums and say what cannot be, or what
// leaves no room to go on: the pool opens where it can, and nothing that was acknowledged is lost.
#include <gtest/gtest.h>

#include <cstring>

#include "base/checksum.h"
#include "base/random.h"
#include "log/log_check.h"
#include "tests/unit/log/log_pool.h"

namespace pmstore::log {
namespace {

constexpr uint64_t kAreaIdentity = 77;  // of LogPool

class LogForged : public testing::Test {
 protected:
  // Changes both copies of a durable struct, and makes their checksums right.
  template <typename T, typename Change>
  void forge(uint64_t offset, uint64_t stride, size_t covered_from, uint32_t seed, Change change,
             size_t covered_end = sizeof(T)) {
    for (uint64_t copy = 0; copy < 2; ++copy) {
      std::byte* const at = pool_.store().area().data() + offset + copy * stride;
      T header;
      std::memcpy(&header, at, sizeof header);
      change(header);
      const auto bytes = std::as_bytes(std::span(&header, 1));
      header.crc = base::crc32c(bytes.subspan(covered_from, covered_end - covered_from), seed);
      std::memcpy(at, &header, sizeof header);
    }
  }
  template <typename Change>
  void forge_ring(uint64_t id, Change change) {
    const auto where = pool_.store().where(id).value();
    forge<RingHeader>(where.region_offset, kRingHeaderCopyStride, offsetof(RingHeader, version),
                      where.salt, change);
  }
  // Of a log without an identity.
  template <typename Change>
  void forge_slot(uint64_t place, Change change) {
    forge<LogSlot>(kLogSlotsOffset + 2 * place * kLogSlotBytes, kLogSlotBytes,
                   offsetof(LogSlot, generation), static_cast<uint32_t>(base::mix64(kAreaIdentity)),
                   change, offsetof(LogSlot, identity));
  }
  // An empty log that has had all incarnations but two, and the first of them is the next.
  uint64_t make_nearly_used_up(FullPolicy policy = FullPolicy::kBackPressure) {
    const uint64_t id = pool_.make("old", policy);
    forge_ring(id, [](RingHeader& header) { header.incarnation = UINT32_MAX - 1; });
    pool_.reopen();
    return id;
  }
  void expect_full(uint64_t id) {
    const auto appended = pool_.append(id, {"more"});
    ASSERT_FALSE(appended);
    EXPECT_EQ(appended.code(), ErrorCode::kFull);
    EXPECT_NE(appended.error().message.find("into a new log"), std::string::npos)
        << appended.error().message;
    const std::string_view text = "more";
    EXPECT_FALSE(pool_.store().append_durable(id, std::as_bytes(std::span(text))));
    EXPECT_EQ(pool_.store().may_acquire(id, 1).code(), ErrorCode::kFull);
    EXPECT_EQ(pool_.store().acquire(id, 1).code(), ErrorCode::kFull);
  }

  LogPool pool_;
};

// ---- incarnations ----

TEST_F(LogForged, ALogWhoseIncarnationsAreUsedUpIsReadAndTrimmedAndItsPoolOpens) {
  const uint64_t other = pool_.make("other");
  const uint64_t id = make_nearly_used_up();
  ASSERT_TRUE(pool_.append(other, {"safe"}));
  ASSERT_TRUE(pool_.append(id, {"one"}));
  ASSERT_TRUE(pool_.append(id, {"two"}));
  EXPECT_EQ(pool_.store().info(id)->incarnation, UINT32_MAX);
  for (int round = 0; round < 3; ++round) {
    pool_.reopen();
    ASSERT_TRUE(check_logs(pool_.pool())->problems.empty());
    EXPECT_EQ(entries_of(pool_.store(), "other"), (std::vector<TestEntry>{{1, "safe"}}));
    EXPECT_EQ(entries_of(pool_.store(), "old"), (std::vector<TestEntry>{{1, "one"}, {2, "two"}}));
    expect_full(id);
    if (round == 1) {
      ASSERT_TRUE(pool_.store().close());
    }
  }
  EXPECT_TRUE(pool_.store().trim_below_index(id, 2));
  ASSERT_TRUE(pool_.store().seal(id));
  pool_.reopen();
  EXPECT_EQ(entries_of(pool_.store(), "old"), (std::vector<TestEntry>{{2, "two"}}));
  EXPECT_TRUE(pool_.store().info(id)->sealed);
  ASSERT_TRUE(pool_.store().erase(id));
}

TEST_F(LogForged, WhatCannotBeAppendedTrimsNothing) {
  const uint64_t id = make_nearly_used_up(FullPolicy::kTrimOldest);
  for (uint64_t i = 0; i < 16; ++i) ASSERT_TRUE(pool_.append(id, {text_of(i, 900)}));
  pool_.reopen();
  expect_full(id);
  EXPECT_EQ(entries_of(pool_.store(), "old").size(), 16u);
}

TEST_F(LogForged, TheLastIncarnationsProducerEndsAsAnyOther) {
  const uint64_t id = make_nearly_used_up();
  const auto grant = pool_.store().acquire(id, 1);
  ASSERT_TRUE(grant) << grant.error().to_string();
  EXPECT_EQ(grant->position.incarnation, UINT32_MAX);
  EXPECT_EQ(pool_.store().may_acquire(id, 1).code(), ErrorCode::kFull) << "to steal it";
  EXPECT_EQ(pool_.append(id, {"no"}).code(), ErrorCode::kBusy);
  ASSERT_TRUE(pool_.store().release(id));
  EXPECT_FALSE(pool_.store().info(id)->exclusive);
  expect_full(id);
  ASSERT_TRUE(pool_.store().close());
  ASSERT_TRUE(pool_.store().erase(id));
}

// ---- LSNs and indexes ----

TEST_F(LogForged, NothingIsAppendedThatWouldEndBehindTheLastLsn) {
  for (const FullPolicy policy : {FullPolicy::kBackPressure, FullPolicy::kTrimOldest}) {
    LogPool pool;
    ReplicaPlace place;
    place.begin_lsn = kMaxLsn - kTestLog / 2;
    const LogOptions options{kTestLog, policy, 0};
    const uint64_t id = pool.store().create("a", options, place).value().id;
    Result<LogStore::Range> appended = LogStore::Range{};
    uint64_t count = 0;
    while ((appended = pool.append(id, {text_of(count, 100)}))) ++count;
    EXPECT_EQ(appended.code(), ErrorCode::kFull) << appended.error().to_string();
    EXPECT_EQ(pool.append(id, {text_of(0, 100), text_of(1, 100)}).code(), ErrorCode::kFull);
    EXPECT_GT(count, kTestLog / 2 / 200 - 2);
    for (int round = 0; round < 2; ++round) {
      EXPECT_EQ(entries_of(pool.store(), "a").size(), count);
      pool.reopen();
    }
  }
}

TEST_F(LogForged, NoLogBeginsWithAnIndexThatCannotHaveBeenReached) {
  struct Begin {
    uint64_t lsn;
    uint64_t index;
  };
  for (const auto& [lsn, index] :
       {Begin{0, 0}, Begin{0, 2}, Begin{64, 4}, Begin{kTestLog, UINT64_MAX}, Begin{kMaxLsn, 1},
        Begin{UINT64_MAX - 7, 1}}) {
    ReplicaPlace place;
    place.begin_lsn = lsn;
    place.begin_index = index;
    EXPECT_EQ(pool_.store().create("a", {.bytes = kTestLog}, place).code(),
              ErrorCode::kInvalidArgument)
        << lsn << " " << index;
  }
  ReplicaPlace place;
  place.begin_lsn = 64;
  place.begin_index = 3;
  ASSERT_TRUE(pool_.store().create("a", {.bytes = kTestLog}, place));
  ASSERT_TRUE(pool_.append(pool_.store().find("a")->id, {"three"}));
  pool_.reopen();
  EXPECT_EQ(entries_of(pool_.store(), "a"), (std::vector<TestEntry>{{3, "three"}}));
}

TEST_F(LogForged, ARingThatCountsMoreEntriesThanCanHaveBeenIsLostAlone) {
  for (const uint64_t index : {uint64_t{2}, uint64_t{1} << 40, UINT64_MAX - 1, UINT64_MAX}) {
    const uint64_t other = pool_.make("other");
    const uint64_t id = pool_.make("a");
    ASSERT_TRUE(pool_.append(other, {"safe"}));
    forge_ring(id, [&](RingHeader& header) { header.expired_below_sequence = index; });
    pool_.reopen();
    EXPECT_TRUE(is_lost(*pool_.store().find("a"))) << index;
    EXPECT_EQ(check_logs(pool_.pool())->problems.size(), 1u);
    EXPECT_EQ(entries_of(pool_.store(), "other"), (std::vector<TestEntry>{{1, "safe"}}));
    ASSERT_TRUE(pool_.store().erase(id));
    ASSERT_TRUE(pool_.store().erase(other));
  }
}

// ---- ids ----

TEST_F(LogForged, TwoLogsWithOneIdAreABadPool) {
  pool_.make("a");
  const uint64_t b = pool_.make("b");
  forge_slot(0, [&](LogSlot& slot) { slot.id = b; });
  pool_.close_store();
  const auto opened = LogStore::open(pool_.pool());
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.code(), ErrorCode::kBadPool);
  EXPECT_NE(opened.error().message.find("same id 2"), std::string::npos) << opened.error().message;
  EXPECT_EQ(check_logs(pool_.pool()).code(), ErrorCode::kBadPool);
}

TEST_F(LogForged, ADeletedLogMayHaveTheIdOfAnotherOne) {
  const uint64_t a = pool_.make("a");
  const uint64_t b = pool_.make("b");
  ASSERT_TRUE(pool_.append(b, {"safe"}));
  ASSERT_TRUE(pool_.store().erase(a));
  forge_slot(0, [&](LogSlot& slot) { slot.id = b; });
  pool_.reopen();
  EXPECT_EQ(entries_of(pool_.store(), "b"), (std::vector<TestEntry>{{1, "safe"}}));
}

// Ids above those of a place that is damaged come from the generation of the area's header.
TEST_F(LogForged, NoIdIsGivenTwiceWhenTheGenerationGivesNoneAnyMore) {
  pool_.make("a");
  pool_.make("b");
  for (const uint64_t copy : {0, 1}) {
    pool_.store().area()[kLogSlotsOffset + (2 + copy) * kLogSlotBytes + 64] ^= std::byte{1};
  }
  uint64_t copy = 0;
  forge<LogAreaHeader>(
      0, kLogAreaCopyStride, offsetof(LogAreaHeader, version), 0,
      [&](LogAreaHeader& header) { header.generation = (uint64_t{1} << 40) + copy++; });
  pool_.reopen();
  ASSERT_EQ(pool_.store().damaged_places(), 1u);
  EXPECT_EQ(pool_.store().create("c", {.bytes = kTestLog}).code(), ErrorCode::kFull);
  EXPECT_TRUE(pool_.store().find("a"));
}

}  // namespace
}  // namespace pmstore::log
