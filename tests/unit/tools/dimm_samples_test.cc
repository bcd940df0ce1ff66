#include "tools/tune/dimm_samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pmstore::tools {
namespace {

using testing::HasSubstr;

std::string reading(const char* id, uint64_t media_reads, uint64_t media_writes, uint64_t reads,
                    uint64_t writes) {
  char text[512];
  snprintf(text, sizeof(text),
           "---DimmID=%s---\n   MediaReads=0x%032lx\n   MediaWrites=0x%032lx\n"
           "   ReadRequests=0x%032lx\n   WriteRequests=0x%032lx\n"
           "   TotalMediaReads=0x%032lx\n   TotalWriteRequests=0x%032lx\n",
           id, media_reads, media_writes, reads, writes, media_reads + 7, writes + 7);
  return text;
}

TEST(DimmSamples, IpmctlsOutputIsRead) {
  const auto dimms =
      parse_ipmctl(reading("0x0001", 4, 8, 1, 2) + reading("0x0011", 40, 80, 10, 20));
  ASSERT_TRUE(dimms) << dimms.error().message;
  ASSERT_EQ(dimms->size(), 2u);
  EXPECT_EQ((*dimms)[0], (DimmReading{"0x0001", 1, 2, 4, 8}));
  EXPECT_EQ((*dimms)[1], (DimmReading{"0x0011", 10, 20, 40, 80}));
}

TEST(DimmSamples, AreWrittenAsIpmctlPrintsThem) {
  const std::vector<DimmReading> dimms = {{"0x0001", 1, 2, 4, 8}, {"0x0011", 10, 20, 40, 80}};
  EXPECT_EQ(*parse_ipmctl(ipmctl_text(dimms)), dimms);
}

// As ipmctl's issue 205 measured it: a random read and a random write of 64 bytes each.
TEST(DimmSamples, WritesAreNotCountedAsReads) {
  const DimmSample before{0, {{"0x0001", 0, 0, 0, 0}}};
  const auto list = deltas(before, {1, {{"0x0001", 7792815, 7794509, 67257116, 35471668}}});
  EXPECT_NEAR(list[0].read_amplification(), 4.08, 0.01);
  EXPECT_NEAR(list[0].write_amplification(), 4.55, 0.01);
  const auto none = deltas(before, {1, {{"0x0001", 0, 10, 5, 40}}});
  EXPECT_EQ(none[0].media_reads, 0u);
}

TEST(DimmSamples, WhatIsMissingIsNamed) {
  EXPECT_THAT(parse_ipmctl("").error().message, HasSubstr("names no DIMM"));
  EXPECT_THAT(parse_ipmctl("---DimmID=0x0001---\nMediaReads=0x1\n").error().message,
              HasSubstr("DIMM 0x0001 lacks"));
  std::string text = reading("0x0001", 4, 8, 1, 2);
  text.replace(text.find("0x0000"), 6, "0y0000");
  EXPECT_THAT(parse_ipmctl(text).error().message, HasSubstr("MediaReads is no number"));
  EXPECT_FALSE(parse_ipmctl("---DimmID=0x1---\nMediaReads=0x1ffffffffffffffff\n"));
}

TEST(DimmSamples, TracesMustMakeSense) {
  const std::string first = "time 1.5\n" + reading("0x0001", 0, 0x4000, 0, 0x1000);
  const std::string second = "time 2.5\n" + reading("0x0001", 0, 0x8000, 0, 0x2000);
  const auto samples = parse_trace(first + second);
  ASSERT_TRUE(samples) << samples.error().message;
  ASSERT_EQ(samples->size(), 2u);
  EXPECT_DOUBLE_EQ((*samples)[1].seconds, 2.5);
  EXPECT_FALSE(parse_trace(first));
  EXPECT_FALSE(parse_trace(second + first));
  EXPECT_FALSE(parse_trace(first + "time 3\n" + reading("0x0002", 0, 0, 0, 0)));
  EXPECT_FALSE(parse_trace("time x\n" + first));
  EXPECT_FALSE(parse_trace(reading("0x0001", 0, 0, 0, 0) + second));
}

// The worked example of docs/tuning.md.
TEST(DimmSamples, AmplificationIsMediaBytesForEachByteAskedFor) {
  const DimmSample before{1.5, {{"0x0001", 0, 0x1000, 0, 0x4000}}};
  // MediaReads counts the writes, too.
  const DimmSample after{3.5, {{"0x0001", 0x800, 0x2000, 0x6000, 0x8000}}};
  const auto list = deltas(before, after);
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[1].name, "all");
  for (const DimmDelta& one : list) {
    EXPECT_DOUBLE_EQ(one.write_amplification(), 4);
    EXPECT_DOUBLE_EQ(one.read_amplification(), 4);
    EXPECT_DOUBLE_EQ(one.reads_per_write(), 0.5);
    EXPECT_DOUBLE_EQ(one.megabytes_per_s(one.write_requests), 4096 * 64 / 1e6 / 2);
  }
}

TEST(DimmSamples, APowerCycleAndIdlenessCountNothing) {
  const DimmSample before{0, {{"0x0001", 100, 100, 100, 100}}};
  const auto list = deltas(before, DimmSample{1, {{"0x0001", 5, 5, 5, 5}}});
  EXPECT_EQ(list[0].write_requests, 0u);
  EXPECT_EQ(list[0].write_amplification(), 0);
  EXPECT_EQ(list[0].reads_per_write(), 0);
  EXPECT_THAT(advice(list[1]), HasSubstr("no writes"));
}

TEST(DimmSamples, AdviceNamesTheRule) {
  EXPECT_THAT(advice({"all", 1, 0, 999, 0, 3900}), HasSubstr("too few for advice"));
  EXPECT_THAT(advice({"all", 1, 0, 1000, 0, 1010}), HasSubstr("no rule looks broken"));
  EXPECT_THAT(advice({"all", 1, 0, 1000, 0, 2000}), HasSubstr("DDIO (H3)"));
  EXPECT_THAT(advice({"all", 1, 0, 1000, 0, 3900}), HasSubstr("(H5)"));
  EXPECT_THAT(advice({"all", 1, 1000, 1000, 4000, 4000}), HasSubstr("H5 to H7"));
}

}  // namespace
}  // namespace pmstore::tools
