#include "persist/strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pmstore::persist {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr Domain kNone = Domain::kNone;
constexpr Domain kAdr = Domain::kMemoryController;
constexpr Domain kEadr = Domain::kCpuCache;
constexpr WriteLanding kMemory = WriteLanding::kMemory;
constexpr WriteLanding kCache = WriteLanding::kLastLevelCache;
constexpr WriteLanding kCpu = WriteLanding::kCpu;

fabric::Capabilities rnic() {
  fabric::Capabilities fabric;
  fabric.read_after_write = true;
  fabric.cpu_moves_data = false;
  return fabric;
}

// DESIGN: the table of docs/persist.md, row by row.
TEST(Negotiate, AutoFollowsTheTable) {
  struct Row {
    PersistCapability server;
    bool cpu_moves_data, read_after_write, native_flush;
    WriteStrategy expected;
  };
  constexpr auto kDoorbell = WriteStrategy::kDoorbell;
  constexpr auto kTwoSided = WriteStrategy::kTwoSided;
  constexpr auto kFlush = WriteStrategy::kFlush;
  const Row rows[] = {
      {{kAdr, kMemory, false}, false, true, false, kDoorbell},
      {{kAdr, kCache, false}, false, true, false, kTwoSided},
      {{kAdr, kCpu, false}, false, true, false, kTwoSided},
      {{kEadr, kMemory, false}, false, true, false, kDoorbell},
      {{kEadr, kCache, false}, false, true, false, kDoorbell},
      {{kEadr, kCpu, false}, true, true, false, kDoorbell},
      {{kNone, kMemory, false}, false, true, false, kTwoSided},
      {{kNone, kCpu, true}, true, true, true, kTwoSided},
      // The server thinks of its RNIC, but this connection's bytes are stored by a CPU.
      {{kAdr, kMemory, false}, true, true, false, kTwoSided},
      // A fabric that lets a READ overtake a WRITE.
      {{kEadr, kMemory, false}, false, false, false, kTwoSided},
      // Native FLUSH needs both ends.
      {{kAdr, kCache, true}, false, true, true, kFlush},
      {{kEadr, kMemory, true}, false, true, true, kFlush},
      {{kEadr, kMemory, true}, false, true, false, kDoorbell},
      {{kEadr, kMemory, false}, false, true, true, kDoorbell},
  };
  for (const Row& row : rows) {
    fabric::Capabilities fabric;
    fabric.cpu_moves_data = row.cpu_moves_data;
    fabric.read_after_write = row.read_after_write;
    fabric.native_flush = row.native_flush;
    const auto got = negotiate(WriteStrategy::kAuto, row.server, fabric);
    ASSERT_TRUE(got);
    EXPECT_EQ(*got, row.expected) << domain_name(row.server.domain) << ", "
                                  << landing_name(row.server.landing);
  }
}

// A strategy that is asked for is used or refused, never replaced; and what auto would not consider
// durable is refused.
TEST(Negotiate, GivesWhatWasAskedForOrRefuses) {
  for (Domain domain : {kNone, kAdr, kEadr}) {
    for (WriteLanding landing : {kMemory, kCache, kCpu}) {
      for (int flags = 0; flags < 16; ++flags) {
        const PersistCapability server{domain, landing, (flags & 1) != 0};
        fabric::Capabilities fabric;
        fabric.cpu_moves_data = (flags & 2) != 0;
        fabric.read_after_write = (flags & 4) != 0;
        fabric.native_flush = (flags & 8) != 0;
        const bool one_sided =
            fabric.read_after_write &&
            (domain == kEadr || (domain == kAdr && landing == kMemory && !fabric.cpu_moves_data));
        const bool flush = domain != kNone && server.native_flush && fabric.native_flush;
        for (auto [wanted, allowed] : {std::pair{WriteStrategy::kNaive, one_sided},
                                       {WriteStrategy::kOutstanding, one_sided},
                                       {WriteStrategy::kDoorbell, one_sided},
                                       {WriteStrategy::kFlush, flush},
                                       {WriteStrategy::kTwoSided, true}}) {
          const auto got = negotiate(wanted, server, fabric);
          ASSERT_EQ(got.has_value(), allowed) << strategy_name(wanted) << " flags " << flags;
          if (allowed) {
            EXPECT_EQ(*got, wanted);
            continue;
          }
          EXPECT_EQ(got.code(), ErrorCode::kUnsupported);
          EXPECT_THAT(got.error().message, AllOf(HasSubstr("use "), Not(HasSubstr("\n"))));
        }
      }
    }
  }
}

TEST(Negotiate, RefusalsSayWhatToChange) {
  auto message = [](WriteStrategy wanted, PersistCapability server, fabric::Capabilities fabric) {
    return negotiate(wanted, server, fabric).error().message;
  };
  EXPECT_EQ(message(WriteStrategy::kDoorbell, {kAdr, kCache, false}, rnic()),
            "one-sided persistent writes are not durable here: domain adr with writes landing in a "
            "CPU cache (DDIO on); use two_sided or auto, or turn DDIO off");
  EXPECT_THAT(message(WriteStrategy::kNaive, {kAdr, kCpu, false}, rnic()),
              HasSubstr("(software RNIC); use two_sided or auto, or use an RNIC"));
  EXPECT_THAT(message(WriteStrategy::kOutstanding, {kNone, kMemory, false}, rnic()),
              HasSubstr("ordinary file; use two_sided or auto, or put the pool on device DAX"));
  fabric::Capabilities unordered = rnic();
  unordered.read_after_write = false;
  EXPECT_THAT(message(WriteStrategy::kDoorbell, {kEadr, kMemory, false}, unordered),
              HasSubstr("does not order a READ"));
  EXPECT_THAT(message(WriteStrategy::kFlush, {kEadr, kMemory, false}, rnic()),
              HasSubstr("the server has no native FLUSH"));
  EXPECT_THAT(message(WriteStrategy::kFlush, {kEadr, kMemory, true}, rnic()),
              HasSubstr("this side's RDMA library or device has no native FLUSH"));
}

TEST(WriteStrategy, NamesRoundTrip) {
  for (auto strategy :
       {WriteStrategy::kAuto, WriteStrategy::kNaive, WriteStrategy::kOutstanding,
        WriteStrategy::kDoorbell, WriteStrategy::kFlush, WriteStrategy::kTwoSided}) {
    EXPECT_EQ(parse_strategy(strategy_name(strategy)).value(), strategy);
  }
  EXPECT_EQ(parse_strategy("fast").code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace pmstore::persist
