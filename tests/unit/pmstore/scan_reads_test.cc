// Which keys the scans of a transaction have seen.
#include "pmstore/client/scan_reads.h"

#include <gtest/gtest.h>

#include <string>

namespace pmstore::internal {
namespace {

constexpr TableId kSeen{0x8001};

TEST(ScanReads, KeyIsCoveredWhereItsRangeWasSeen) {
  ScanReads seen;
  EXPECT_FALSE(seen.covers(kSeen, "b"));
  seen.add_range(kSeen, {"b", "d"});
  EXPECT_TRUE(seen.covers(kSeen, "b"));
  EXPECT_TRUE(seen.covers(kSeen, "c"));
  EXPECT_FALSE(seen.covers(kSeen, "a"));
  EXPECT_FALSE(seen.covers(kSeen, "d"));
  EXPECT_FALSE(seen.covers(TableId{0x8002}, "c"));
  seen.add_range(kSeen, {"x", ""});
  EXPECT_TRUE(seen.covers(kSeen, "zzz"));
  seen.clear();
  EXPECT_FALSE(seen.covers(kSeen, "c"));
}

// Pages in either direction are one range: else a long scan would be forgotten.
TEST(ScanReads, PagesThatContinueAreOneRange) {
  const auto key = [](int i) { return std::to_string(1000 + i); };
  ScanReads forwards;
  ScanReads backwards;
  constexpr int kPages = 500;
  for (int i = 0; i < kPages; ++i) {
    forwards.add_range(kSeen, {key(i), key(i + 1)});
    backwards.add_range(kSeen, {key(kPages - i - 1), key(kPages - i)});
  }
  for (const ScanReads* seen : {&forwards, &backwards}) {
    EXPECT_TRUE(seen->covers(kSeen, key(0)));
    EXPECT_TRUE(seen->covers(kSeen, key(kPages - 1)));
    EXPECT_FALSE(seen->covers(kSeen, key(kPages)));
  }
}

}  // namespace
}  // namespace pmstore::internal
