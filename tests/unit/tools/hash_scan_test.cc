// `pmstore kv scan` of a hash table whose records move meanwhile.
#include "tools/cli/hash_scan.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "tests/unit/pmstore/moves_amid_scans.h"

namespace pmstore::tools {
namespace {

// Three pages of 256 KiB.
class HashScan : public testing::MovesAmidScans {
 protected:
  static constexpr int kCount = 2000;
  static constexpr int kOf = 4;

  void SetUp() override {
    MovesAmidScans::SetUp();
    fill_and_erase(table_, kCount, 1400, kOf);
  }
  struct Printed {
    int status;
    std::string out;
    std::string err;
  };
  Printed scan(HashScanOptions options) {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int status = run(scan_hash(*client_, table_, std::move(options), "kv scan"));
    fflush(stdout);
    return {status, ::testing::internal::GetCapturedStdout(),
            ::testing::internal::GetCapturedStderr()};
  }
};

TEST_F(HashScan, BeginsAgainAndPrintsEachRecordOnce) {
  wait_for_the_first_move();
  const uint64_t begun_ns = executor_.now_ns();
  const Printed printed = scan({true, "", 0});
  EXPECT_EQ(printed.status, 0) << printed.err;
  EXPECT_GE(executor_.now_ns() - begun_ns, kLeastPauseNs) << "it has begun again";
  const auto shown = nlohmann::json::parse(printed.out);
  EXPECT_TRUE(shown.at("complete"));
  std::set<std::string> keys;
  for (const auto& record : shown.at("records")) keys.insert(record.at("key"));
  EXPECT_EQ(shown.at("records").size(), kCount / kOf + 0u) << "none is there twice";
  for (int i = 0; i < kCount; i += kOf) EXPECT_TRUE(keys.contains(key_at(i))) << i;
}

TEST_F(HashScan, ThatHasPrintedLinesEndsInsteadWithOneLineThatSaysWhatToDo) {
  wait_for_the_first_move();
  const Printed printed = scan({});
  EXPECT_EQ(printed.status, 1);
  EXPECT_FALSE(printed.out.empty());
  EXPECT_NE(printed.err.find("begin the scan again"), std::string::npos) << printed.err;
  EXPECT_EQ(std::count(printed.err.begin(), printed.err.end(), '\n'), 1) << printed.err;
}

TEST_F(HashScan, ThatHasPrintedNothingYetBeginsAgain) {
  wait_for_the_first_move();
  const Printed printed = scan({false, "none", 0});
  EXPECT_EQ(printed.status, 0) << printed.err;
  EXPECT_EQ(printed.out, "");
}

}  // namespace
}  // namespace pmstore::tools
