// A log area with headers and slots that have right checksums and say what cannot be, or what
// leaves no room to go on: the pool opens where it can, and nothing that was acknowledged is lost.
#include <gtest/gtest.h>

#include <cstring>

#include "base/checksum.h"
#include "log/log_check.h"
#include "tests/unit/log/log_pool.h"

namespace pmstore::log {
namespace {

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

}  // namespace
}  // namespace pmstore::log
