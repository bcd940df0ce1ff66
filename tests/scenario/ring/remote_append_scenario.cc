// What RemoteAppender promises, on every provider.
#include "tests/scenario/ring/ring_scenario.h"

namespace pmstore::scenario {
namespace {

using persist::WriteStrategy;

class RemoteAppend : public RingScenario {};

TEST_F(RemoteAppend, IsOneDoorbellOneRoundTripOneCompletion) {
  auto link = connect();
  ASSERT_TRUE(link);
  ASSERT_TRUE(append(*link, 1, text(1, 64)));
  const fabric::Counters before = link->connection->counters();
  ASSERT_TRUE(append(*link, 2, text(2, 64)));
  const fabric::Counters cost = link->connection->counters() - before;
  EXPECT_EQ(cost.doorbells, 1u);
  EXPECT_EQ(cost.round_trips, 1u);
  if (one_sided(*link)) {
    EXPECT_EQ(link->writer->strategy(), WriteStrategy::kDoorbell);
    EXPECT_EQ(cost.completions, 1u);
    EXPECT_EQ(cost.work_requests, 2u) << "WRITE and READ";
    EXPECT_EQ(cost.server_messages, 0u);
    EXPECT_EQ(cost.bytes_written, 128u);
  } else {
    EXPECT_EQ(link->writer->strategy(), WriteStrategy::kTwoSided);
    EXPECT_EQ(cost.server_messages, 1u);
  }
}

TEST_F(RemoteAppend, PadEntryCostsNoSecondDoorbellOrRoundTrip) {
  auto link = connect();
  ASSERT_TRUE(link);
  ASSERT_TRUE(append(*link, 1, text(1, 64)));
  const fabric::Counters before = link->connection->counters();
  const auto appended = append(*link, 2, text(2, 400));
  const fabric::Counters cost = link->connection->counters() - before;
  ASSERT_TRUE(appended);
  EXPECT_EQ(appended->lsn, 256u) << "a pad entry goes from 128 to 256";
  EXPECT_EQ(cost.doorbells, 1u);
  EXPECT_EQ(cost.round_trips, 1u);
  EXPECT_EQ(found(*link).size(), 2u);
}

TEST_F(RemoteAppend, EntriesAreFoundByTheOwnerAsTheyWereAppended) {
  auto link = connect();
  ASSERT_TRUE(link);
  std::vector<FoundEntry> all;
  for (uint64_t sequence = 1; sequence <= 60; ++sequence) {
    const std::string payload = text(sequence, sequence * 13 % 900);
    const auto appended = append(*link, sequence, payload);
    ASSERT_TRUE(appended) << appended.error().to_string();
    all.push_back(expected(*appended, sequence, payload));
  }
  EXPECT_EQ(found(*link), all);
}

TEST_F(RemoteAppend, ManyLapsWithTruncationComeBack) {
  auto link = connect();
  ASSERT_TRUE(link);
  Random random(5);
  std::vector<FoundEntry> all;
  uint64_t truncations = 0;
  for (uint64_t sequence = 1; link->appender->position().tail_lsn < 5 * kScenarioRingBytes;
       ++sequence) {
    const std::string payload = text(sequence, random.below(3000));
    auto appended = append(*link, sequence, payload);
    if (!appended) {
      ASSERT_EQ(appended.code(), ErrorCode::kBackPressure) << appended.error().to_string();
      ASSERT_EQ(found(*link), all);
      const size_t gone = all.size() * 3 / 4;
      ASSERT_TRUE(truncate(*link, all[gone].lsn));
      all.erase(all.begin(), all.begin() + static_cast<ptrdiff_t>(gone));
      ++truncations;
      appended = append(*link, sequence, payload);
      ASSERT_TRUE(appended) << appended.error().to_string();
    }
    all.push_back(expected(*appended, sequence, payload));
  }
  EXPECT_EQ(found(*link), all);
  EXPECT_GE(truncations, 4u);
}

TEST_F(RemoteAppend, MarkThatGoesBackOrPassesTheTailIsRefused) {
  auto link = connect();
  ASSERT_TRUE(link);
  const auto first = append(*link, 1, text(1, 10));
  ASSERT_TRUE(first);
  EXPECT_EQ(link->appender->truncated(first->next_lsn + 64).code(), ErrorCode::kInvalidArgument);
  ASSERT_TRUE(link->appender->truncated(first->next_lsn));
  EXPECT_EQ(link->appender->truncated(0).code(), ErrorCode::kInvalidArgument);
}

TEST_F(RemoteAppend, ConcurrentAppendsKeepTheOrderOfTheCalls) {
  auto link = connect();
  ASSERT_TRUE(link);
  std::vector<Appending> appendings;
  for (uint64_t sequence = 1; sequence <= 64; ++sequence) {
    appendings.push_back({sequence, text(sequence, sequence * 37 % 500), {}, 0});
  }
  append_all(*link, appendings);
  std::vector<FoundEntry> all;
  for (size_t i = 0; i < appendings.size(); ++i) {
    ASSERT_TRUE(*appendings[i].result) << appendings[i].result->error().to_string();
    EXPECT_EQ(appendings[i].reported, i + 1);
    all.push_back(expected(**appendings[i].result, appendings[i].sequence, appendings[i].payload));
  }
  EXPECT_EQ(found(*link), all);
}

TEST_F(RemoteAppend, UsedUpStagingMemoryMakesAppendsWaitNotFail) {
  LinkOptions options;
  options.staging_bytes = log::RemoteAppender::kMinStagingBytes;
  auto link = connect(options);
  ASSERT_TRUE(link);
  std::vector<Appending> appendings;
  for (uint64_t sequence = 1; sequence <= 40; ++sequence) {
    appendings.push_back({sequence, text(sequence, sequence % 3 == 0 ? 1400 : 90), {}, 0});
  }
  append_all(*link, appendings);
  std::vector<FoundEntry> all;
  for (size_t i = 0; i < appendings.size(); ++i) {
    ASSERT_TRUE(*appendings[i].result) << appendings[i].result->error().to_string();
    EXPECT_EQ(appendings[i].reported, i + 1);
    all.push_back(expected(**appendings[i].result, appendings[i].sequence, appendings[i].payload));
  }
  EXPECT_EQ(found(*link), all);
}

TEST_F(RemoteAppend, WhatNeverFitsIsTooLargeAndDoesNoHarm) {
  LinkOptions options;
  options.staging_bytes = log::RemoteAppender::kMinStagingBytes;
  auto link = connect(options);
  ASSERT_TRUE(link);
  EXPECT_EQ(append(*link, 1, text(1, 4090)).code(), ErrorCode::kTooLarge) << "for the staging";
  EXPECT_EQ(append(*link, 1, text(1, kScenarioRingBytes / 2)).code(), ErrorCode::kTooLarge);
  ASSERT_TRUE(append(*link, 2, text(2, 3000)));
  EXPECT_EQ(found(*link).size(), 1u);
}

TEST_F(RemoteAppend, TooLittleStagingMemoryIsRefused) {
  auto link = connect();
  ASSERT_TRUE(link);
  auto appender = log::RemoteAppender::create(*device_, *link->writer, link->answer.position,
                                              log::RemoteAppender::kMinStagingBytes - 1);
  ASSERT_FALSE(appender);
  EXPECT_EQ(appender.code(), ErrorCode::kInvalidArgument);
}

TEST_F(RemoteAppend, FullRingIsBackPressureForEveryoneUntilTruncated) {
  auto link = connect();
  ASSERT_TRUE(link);
  std::vector<Appending> appendings;
  for (uint64_t sequence = 1; sequence <= 80; ++sequence) {
    appendings.push_back({sequence, text(sequence, 992), {}, 0});
  }
  append_all(*link, appendings);
  size_t fitted = 0;
  for (const Appending& what : appendings) {
    if (*what.result) {
      ++fitted;
    } else {
      EXPECT_EQ(what.result->code(), ErrorCode::kBackPressure);
    }
  }
  EXPECT_EQ(fitted, (kScenarioRingBytes - log::kRingHeaderBytes) / 1024);
  EXPECT_EQ(found(*link).size(), fitted);
  ASSERT_TRUE(truncate(*link, (*appendings[10].result)->lsn));
  EXPECT_TRUE(append(*link, 99, text(99, 992)));
  EXPECT_EQ(found(*link).size(), fitted - 9);
}

TEST_F(RemoteAppend, NextLinkOfTheSameOwnerContinuesAndAnotherOwnersIsEmpty) {
  auto first = connect();
  ASSERT_TRUE(first);
  const auto one = append(*first, 1, text(1, 100));
  ASSERT_TRUE(one);
  first.reset();
  auto second = connect();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->answer.position.tail_lsn, one->next_lsn);
  const auto two = append(*second, 2, text(2, 100));
  ASSERT_TRUE(two);
  EXPECT_EQ(two->lsn, one->next_lsn);
  EXPECT_EQ(found(*second).size(), 2u);
  second.reset();
  LinkOptions other;
  other.owner = 2;
  auto third = connect(other);
  ASSERT_TRUE(third);
  EXPECT_TRUE(found(*third).empty());
  ASSERT_TRUE(append(*third, 3, text(3, 100)));
  EXPECT_EQ(found(*third).size(), 1u);
}

TEST_F(RemoteAppend, EveryStrategyAppendsTheSame) {
  for (WriteStrategy strategy : {WriteStrategy::kNaive, WriteStrategy::kOutstanding,
                                 WriteStrategy::kDoorbell, WriteStrategy::kTwoSided}) {
    SCOPED_TRACE(persist::strategy_name(strategy));
    LinkOptions options;
    {
      auto probe = connect();
      ASSERT_TRUE(probe);
      if (!one_sided(*probe) && strategy != WriteStrategy::kTwoSided) continue;
    }
    options.owner = 100 + static_cast<uint64_t>(strategy);
    options.writer.strategy = strategy;
    auto link = connect(options);
    ASSERT_TRUE(link);
    std::vector<Appending> appendings;
    for (uint64_t sequence = 1; sequence <= 20; ++sequence) {
      appendings.push_back({sequence, text(sequence, sequence * 61 % 700), {}, 0});
    }
    append_all(*link, appendings);
    std::vector<FoundEntry> all;
    for (const Appending& what : appendings) {
      ASSERT_TRUE(*what.result) << what.result->error().to_string();
      all.push_back(expected(**what.result, what.sequence, what.payload));
    }
    EXPECT_EQ(found(*link), all);
  }
}

// Large entries go through the server's CPU and small ones do not: they overtake, but are not
// reported before the ones that they overtook.
TEST_F(RemoteAppend, MixtureOfOneAndTwoSidedIsReportedInOrder) {
  LinkOptions options;
  options.writer.two_sided_bytes = 1024;
  auto link = connect(options);
  ASSERT_TRUE(link);
  std::vector<Appending> appendings;
  for (uint64_t sequence = 1; sequence <= 30; ++sequence) {
    appendings.push_back({sequence, text(sequence, sequence % 2 == 0 ? 50 : 2000), {}, 0});
  }
  append_all(*link, appendings);
  std::vector<FoundEntry> all;
  for (size_t i = 0; i < appendings.size(); ++i) {
    ASSERT_TRUE(*appendings[i].result) << appendings[i].result->error().to_string();
    EXPECT_EQ(appendings[i].reported, i + 1);
    all.push_back(expected(**appendings[i].result, appendings[i].sequence, appendings[i].payload));
  }
  EXPECT_EQ(found(*link), all);
}

}  // namespace
}  // namespace pmstore::scenario
