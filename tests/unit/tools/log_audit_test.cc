// The audit notices everything that it is for.
#include "tools/bench/log_audit.h"

#include <gtest/gtest.h>

#include <map>

namespace pmstore::tools {
namespace {

constexpr size_t kBytes = 100;
constexpr uint64_t kHeader = 40;  // of an entry in a log
constexpr uint64_t kEntry = 192;  // what it takes there

class LogAuditOf : public testing::Test {
 protected:
  LogAuditOf() : payloads_(kBytes, 7), audit_(payloads_, 1) {}

  // Entry `index` as its writer made it, `number` being that of the writer.
  void see(uint64_t index, uint64_t number, size_t flip = SIZE_MAX, uint64_t pad = 0) {
    std::vector<std::byte> payload(kBytes);
    payloads_.fill(payload, log_tag(3, number));
    if (flip < kBytes) payload[flip] ^= std::byte{1};
    lsn_ += pad;
    audit_.see({lsn_, lsn_ + kEntry, index, payload});
    lsn_ += kEntry;
  }
  void expect_all(uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) audit_.expect(1 + i, log_tag(3, i));
  }

  LogPayloads payloads_;
  LogAudit audit_;
  uint64_t lsn_ = 0;
};

TEST_F(LogAuditOf, EverythingThatIsThereIsFine) {
  expect_all(3);
  for (uint64_t i = 0; i < 3; ++i) see(1 + i, i, SIZE_MAX, i == 2 ? 64 : 0);
  const LogAuditResult result = audit_.finish();
  EXPECT_TRUE(result.ok()) << result.first_problem;
  EXPECT_EQ(result.read, 3u);
  EXPECT_EQ(result.payload_bytes, 3 * kBytes);
  EXPECT_EQ(result.header_bytes, 3 * kHeader);
  EXPECT_EQ(result.padding_bytes, 3 * (kEntry - kHeader - kBytes) + 64);
}

TEST_F(LogAuditOf, AMissingLastEntryIsNoticed) {
  expect_all(3);
  for (uint64_t i = 0; i < 2; ++i) see(1 + i, i);
  const LogAuditResult result = audit_.finish();
  EXPECT_EQ(result.missing, 1u);
  EXPECT_NE(result.first_problem.find("entry 3 "), std::string::npos);
}

TEST_F(LogAuditOf, AHoleIsNoticed) {
  expect_all(3);
  see(1, 0);
  see(3, 2);
  const LogAuditResult result = audit_.finish();
  EXPECT_EQ(result.missing, 1u);
  EXPECT_EQ(result.out_of_order, 1u);
}

TEST_F(LogAuditOf, EveryChangedByteIsNoticed) {
  for (size_t flip = 0; flip < kBytes; ++flip) {
    LogAudit audit(payloads_, 1);
    audit.expect(1, log_tag(3, 0));
    std::vector<std::byte> payload(kBytes);
    payloads_.fill(payload, log_tag(3, 0));
    payload[flip] ^= std::byte{1};
    audit.see({0, kEntry, 1, payload});
    EXPECT_EQ(audit.finish().changed, 1u) << flip;
  }
}

TEST_F(LogAuditOf, SwappedEntriesAreNoticed) {
  expect_all(2);
  see(1, 1);
  see(2, 0);
  EXPECT_EQ(audit_.finish().changed, 2u);
}

TEST_F(LogAuditOf, ATwiceAcknowledgedIndexIsNoticed) {
  expect_all(1);
  audit_.expect(1, log_tag(4, 0));
  see(1, 0);
  EXPECT_EQ(audit_.finish().out_of_order, 1u);
}

TEST_F(LogAuditOf, WhatNobodyAcknowledgedIsOnlyCounted) {
  expect_all(1);
  see(1, 0);
  see(2, 1);
  const LogAuditResult result = audit_.finish();
  EXPECT_TRUE(result.ok());
  EXPECT_EQ(result.unacknowledged, 1u);
}

}  // namespace
}  // namespace pmstore::tools
