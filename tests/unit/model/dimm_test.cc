#include "model/dimm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace pmstore::model {
namespace {

constexpr uint64_t kOneNs = 1000;

DimmParameters round_numbers() {
  DimmParameters p;
  p.media_write_ns = 100;
  p.media_read_ns = 40;
  p.read_write_turn_ns = 10;
  p.read_latency_ns = 250;
  p.buffer_latency_ns = 90;
  p.combining_lines = 4;
  p.media_queue = 2;
  return p;
}

TEST(ModelDimm, FourNeighboursAreOneMediaWrite) {
  Dimm dimm(round_numbers());
  for (uint64_t address = 0; address < 64 * 256; address += 64) {
    dimm.write(0, address, Dimm::kDevice);
  }
  dimm.settle();
  EXPECT_EQ(dimm.counters().write_requests, 256u);
  EXPECT_EQ(dimm.counters().media_writes, 64u);
  EXPECT_DOUBLE_EQ(dimm.counters().write_amplification(), 1);
}

TEST(ModelDimm, LinesThatComeTooFarApartAreFourMediaWrites) {
  Dimm dimm(round_numbers());
  for (uint64_t line = 0; line < 4; ++line) {
    for (uint64_t xpline = 0; xpline < 64; ++xpline) {
      dimm.write(0, xpline * 256 + line * 64, Dimm::kDevice);
    }
  }
  dimm.settle();
  EXPECT_DOUBLE_EQ(dimm.counters().write_amplification(), 4);
}

TEST(ModelDimm, WritesWaitForTheMediaOnlyWhenBufferAndQueueAreFull) {
  Dimm dimm(round_numbers());
  uint64_t address = 0;
  const auto write = [&] { return dimm.write(0, (address += 256), Dimm::kDevice); };
  for (int i = 0; i < 4; ++i) EXPECT_EQ(write(), 0u);  // fill the buffer
  // Two victims fit in the queue: done at 110 (the media turns from reading first) and 210.
  EXPECT_EQ(write(), 0u);
  EXPECT_EQ(write(), 0u);
  EXPECT_EQ(write(), 110 * kOneNs);
  EXPECT_EQ(write(), 210 * kOneNs);
}

TEST(ModelDimm, AReadTakesTheMediaAndThenIsInTheBuffer) {
  Dimm dimm(round_numbers());
  EXPECT_EQ(dimm.read(0, 0, Dimm::kDevice), 250 * kOneNs);
  EXPECT_EQ(dimm.read(1000 * kOneNs, 64, Dimm::kDevice), 1090 * kOneNs);
  EXPECT_EQ(dimm.counters().read_requests, 2u);
  EXPECT_EQ(dimm.counters().media_reads, 1u);
}

TEST(ModelDimm, AReadWaitsForTheMedia) {
  Dimm dimm(round_numbers());
  for (uint64_t i = 0; i < 6; ++i) dimm.write(0, i * 256, Dimm::kDevice);
  // Two media writes keep it until 210; it turns and reads until 260; 210 more is the way.
  EXPECT_EQ(dimm.read(0, 1 << 20, Dimm::kDevice), 470 * kOneNs);
}

TEST(ModelDimm, ReadsPushWrittenXpLinesOutOfTheBuffer) {
  Dimm dimm(round_numbers());
  dimm.write(0, 0, Dimm::kDevice);
  for (uint64_t i = 1; i <= 4; ++i) dimm.read(0, i * 256, Dimm::kDevice);
  EXPECT_EQ(dimm.counters().media_writes, 1u);
  dimm.settle();
  EXPECT_EQ(dimm.counters().media_writes, 1u);
}

// Time for 4,000 XPLines by `writers` cores, or by devices, each at its own pace: `burst` at a time
// are told to the DIMM before another one's.
uint64_t time_of(uint32_t writers, uint64_t burst = 1) {
  Now now;
  Dimm dimm(round_numbers(), &now);
  std::vector<uint64_t> at_ps(std::max(1u, writers), 0);
  uint64_t xpline = 0;
  while (xpline < 4000) {
    const auto core = std::min_element(at_ps.begin(), at_ps.end());
    now.move_to(*core);
    const auto number = static_cast<uint8_t>(core - at_ps.begin());
    const Dimm::Writer writer = writers == 0 ? Dimm::kDevice : uint8_t(number + 1);
    for (uint64_t i = 0; i < burst; ++i) *core = dimm.write(*core, ++xpline * 256, writer);
  }
  return *std::max_element(at_ps.begin(), at_ps.end());
}

TEST(ModelDimm, TwentyCpuWritersGetAThirdLessThanFourButDevicesDoNot) {
  for (const uint64_t burst : {1, 16}) {
    const auto four = static_cast<double>(time_of(4, burst));
    EXPECT_NEAR(static_cast<double>(time_of(1, burst)) / four, 1, 0.02);
    EXPECT_NEAR(static_cast<double>(time_of(0, burst)) / four, 1, 0.02);
    EXPECT_NEAR(four / static_cast<double>(time_of(20, burst)), 0.63, 0.02);
    EXPECT_NEAR(four / static_cast<double>(time_of(40, burst)), 0.63, 0.02);
  }
}

TEST(ModelDimm, SettledCountersHaveWhatIsStillInTheBuffer) {
  Dimm dimm(round_numbers());
  for (uint64_t i = 0; i < 6; ++i) dimm.write(0, i * 256, Dimm::kDevice);
  EXPECT_EQ(dimm.counters().media_writes, 2u);
  EXPECT_EQ(dimm.settled_counters().media_writes, 6u);
  EXPECT_EQ(dimm.counters().media_writes, 2u);
}

TEST(ModelDimm, SettlingTakesNoTime) {
  Dimm dimm(round_numbers());
  for (uint64_t i = 0; i < 6; ++i) dimm.write_untimed(i * 256);
  EXPECT_EQ(dimm.counters().media_writes, 2u);
  dimm.settle();
  EXPECT_EQ(dimm.counters().media_writes, 6u);
  EXPECT_EQ(dimm.read(0, 1 << 20, Dimm::kDevice), 250 * kOneNs);
}

}  // namespace
}  // namespace pmstore::model
