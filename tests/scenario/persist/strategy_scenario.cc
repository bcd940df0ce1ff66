// Every strategy on every provider: what is allowed, what it costs, and that the bytes are there.
#include <gmock/gmock.h>

#include <cstdlib>
#include <cstring>

#include "tests/scenario/persist/persist_scenario.h"

namespace pmstore::scenario {
namespace {

using ::testing::HasSubstr;

struct Cost {
  uint64_t doorbells, round_trips, completions, server_messages;
};

Cost cost_of(WriteStrategy strategy) {
  switch (strategy) {
    case WriteStrategy::kNaive: return {2, 2, 2, 0};
    case WriteStrategy::kOutstanding: return {2, 1, 2, 0};
    case WriteStrategy::kTwoSided: return {1, 1, 0, 1};
    default: return {1, 1, 1, 0};
  }
}

TEST_P(PersistScenario, EachStrategyCostsExactlyWhatItSays) {
  for (WriteStrategy strategy : allowed()) {
    SCOPED_TRACE(strategy_name(strategy));
    auto durable = writer({.strategy = strategy});
    ASSERT_NE(durable, nullptr);
    EXPECT_EQ(durable->strategy(), strategy);
    const uint64_t drains_before = server_stats().drains;
    for (uint32_t bytes : {1u, 8u, 64u, 200u, 4096u}) {
      const RemotePiece pieces[] = {piece(0, bytes, 4096)};
      const fabric::Counters before = connection_->counters();
      const Status done = write(*durable, pieces);
      ASSERT_TRUE(done) << done.error().to_string();
      const fabric::Counters used = connection_->counters() - before;
      const Cost expected = cost_of(strategy);
      EXPECT_EQ(used.doorbells, expected.doorbells);
      EXPECT_EQ(used.round_trips, expected.round_trips);
      EXPECT_EQ(used.completions, expected.completions);
      EXPECT_EQ(used.server_messages, expected.server_messages);
    }
    // One-sided: the server's CPU had nothing to do.
    EXPECT_EQ(server_stats().drains - drains_before, cost_of(strategy).server_messages * 5);
    expect_content();
  }
}

TEST_P(PersistScenario, WhatIsNotDurableHereIsRefusedWithWhatToChange) {
  const auto flush = make_writer({.strategy = WriteStrategy::kFlush});
  ASSERT_FALSE(flush);
  EXPECT_EQ(flush.code(), ErrorCode::kUnsupported);
  for (auto strategy :
       {WriteStrategy::kNaive, WriteStrategy::kOutstanding, WriteStrategy::kDoorbell}) {
    const auto made = make_writer({.strategy = strategy});
    EXPECT_EQ(made.has_value(), one_sided_allowed()) << strategy_name(strategy);
    if (made) continue;
    EXPECT_EQ(made.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(made.error().message, HasSubstr("not durable here"));
    EXPECT_THAT(made.error().message, HasSubstr("use two_sided or auto, or"));
  }
}

TEST_P(PersistScenario, AutoTakesTheFastestThatIsDurable) {
  auto durable = writer({});
  ASSERT_NE(durable, nullptr);
  EXPECT_EQ(durable->strategy(),
            one_sided_allowed() ? WriteStrategy::kDoorbell : WriteStrategy::kTwoSided);
  const RemotePiece pieces[] = {piece(0, 64, 0)};
  ASSERT_TRUE(write(*durable, pieces));
  expect_content();
}

TEST_P(PersistScenario, ManyPiecesOfEverySizeAndAlignmentAllArrive) {
  for (WriteStrategy strategy : allowed()) {
    SCOPED_TRACE(strategy_name(strategy));
    auto durable = writer({.strategy = strategy});
    ASSERT_NE(durable, nullptr);
    for (int round = 0; round < 40; ++round) {
      std::vector<RemotePiece> pieces;
      const size_t count = 1 + random_.below(RemoteWriter::kMaxPieces);
      for (size_t i = 0; i < count; ++i) {
        const auto bytes = static_cast<uint32_t>(1 + random_.below(round % 4 == 0 ? 30'000 : 600));
        // Later pieces may cover earlier ones: then the later one counts.
        pieces.push_back(piece(i * 32'768, bytes, random_.below(64 * 1024)));
      }
      const Status done = write(*durable, pieces);
      ASSERT_TRUE(done) << done.error().to_string();
    }
    expect_content();
  }
}

Task<void> write_again_and_again(RemoteWriter& durable, RemotePiece piece, int times, int& failures,
                                 int& running) {
  for (int i = 0; i < times; ++i) {
    const RemotePiece pieces[] = {piece};
    const std::span<const RemotePiece> all(pieces);
    Result<persist::Persisted> done = co_await durable.write(all);
    if (!done) ++failures;
  }
  --running;
}

TEST_P(PersistScenario, ManyWritersAtATimeDoNotDisturbEachOther) {
  for (WriteStrategy strategy : allowed()) {
    SCOPED_TRACE(strategy_name(strategy));
    auto durable = writer({.strategy = strategy});
    ASSERT_NE(durable, nullptr);
    int failures = 0;
    int running = 100;
    for (int i = 0; i < 100; ++i) {
      const RemotePiece each = piece(static_cast<size_t>(i) * 1024, 700, 8192 + uint64_t(i) * 700);
      executor_.spawn(write_again_and_again(*durable, each, 10, failures, running));
    }
    ASSERT_TRUE(all_end(running, kPatientTimeoutNs)) << "writers hang";
    EXPECT_EQ(failures, 0);
    expect_content();
  }
}

TEST_P(PersistScenario, LargeWritesGoTwoSidedWhereTheyWouldLandInACache) {
  auto durable = writer({.two_sided_bytes = 4096});
  ASSERT_NE(durable, nullptr);
  for (auto [bytes, rpc] : {std::pair{64u, !one_sided_allowed()},
                            {4095u, !one_sided_allowed()},
                            {4096u, true},
                            {20'000u, true}}) {
    const RemotePiece pieces[] = {piece(0, bytes, 0)};
    const uint64_t before = connection_->counters().server_messages;
    ASSERT_TRUE(write(*durable, pieces));
    EXPECT_EQ(connection_->counters().server_messages - before, rpc ? 1u : 0u) << bytes;
  }
  expect_content();
}

TEST_P(PersistScenario, OutsideTheGrantNothingIsWritten) {
  for (WriteStrategy strategy : allowed()) {
    auto durable = writer({.strategy = strategy});
    ASSERT_NE(durable, nullptr);
    const RemotePiece inside = piece(0, 64, 0);
    const RemotePiece pieces[] = {inside, {inside.from, kGrantedBytes - 63}};
    const Status done = write(*durable, pieces);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.code(), ErrorCode::kInvalidArgument);
    std::memset(expected_.data(), 0, 64);
    expect_content();
  }
}

Task<void> write_until_it_fails(Executor& executor, RemoteWriter& durable, RemotePiece piece,
                                int& running) {
  const RemotePiece pieces[] = {piece};
  const std::span<const RemotePiece> all(pieces);
  while (true) {
    Result<persist::Persisted> done = co_await durable.write(all);
    if (!done) break;
    co_await executor.yield();  // an in-process write is over at once
  }
  --running;
}

TEST_P(PersistScenario, ALostServerGivesErrorsAndNoToken) {
  for (WriteStrategy strategy : allowed()) {
    SCOPED_TRACE(strategy_name(strategy));
    auto durable = writer({.strategy = strategy});
    ASSERT_NE(durable, nullptr);
    int running = 16;
    for (int i = 0; i < 16; ++i) {
      const RemotePiece each = piece(static_cast<size_t>(i) * 64, 64, uint64_t(i) * 64);
      executor_.spawn(write_until_it_fails(executor_, *durable, each, running));
    }
    for (int turn = 0; turn < 50; ++turn) executor_.run_once();
    EXPECT_EQ(running, 16);
    side_.target->kill();
    ASSERT_TRUE(all_end(running, with_patience(20 * short_timeout_ns()))) << "writers hang";
    const RemotePiece after[] = {piece(0, 64, 0)};
    EXPECT_FALSE(write(*durable, after));
    const bool last = strategy == allowed().back();
    durable.reset();
    TearDown();
    side_.target.reset();
    if (last) break;
    ASSERT_NO_FATAL_FAILURE(SetUp());
  }
}

// A file is in the domain that was assumed; a device, in a guest of tests/guest, in the one that
// its platform was told to have.
TEST_P(PersistScenario, TheServerDeclaresTheDomainOfItsMemory) {
  const char* platform = std::getenv("PMSTORE_EXPECT_DOMAIN");
  const std::string expected = GetParam() != kDetected ? GetParam() : platform ? platform : "none";
  EXPECT_EQ(domain_name(answer_.domain), expected);
}

}  // namespace
}  // namespace pmstore::scenario
