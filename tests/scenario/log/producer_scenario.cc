// What an exclusive producer's appends cost, when readers see them, and what it does without room.
#include "tests/scenario/log/log_scenario.h"

namespace pmstore::scenario {
namespace {

using log::FullPolicy;
using persist::WriteStrategy;

constexpr uint64_t kNever = 3'600'000'000'000;

class ExclusiveProducer : public LogScenario {
 protected:
  void SetUp() override {
    LogScenario::SetUp();
    start_server();
  }
  // One that publishes only with its appends, so that every doorbell is an append's.
  std::unique_ptr<log::LogProducer> quiet(uint64_t log) {
    log::LogProducerOptions options;
    options.publish_delay_ns = kNever;
    return produce(*client_, log, options);
  }
};
PMSTORE_LOGS_SCENARIOS(ExclusiveProducer);

TEST_P(ExclusiveProducer, OneEntryIsOneDoorbellOneRoundTripNoMessage) {
  const auto log = make("log");
  auto producer = quiet(log.id);
  ASSERT_NE(producer, nullptr);
  EXPECT_EQ(producer->strategy(),
            GetParam().one_sided ? WriteStrategy::kDoorbell : WriteStrategy::kTwoSided);
  ASSERT_TRUE(append(*producer, "nothing to publish yet"));
  constexpr uint64_t kAppends = 20;
  const fabric::Counters before = producer->counters();
  const fabric::Counters session_before = client_->counters();
  for (uint64_t i = 0; i < kAppends; ++i) ASSERT_TRUE(append(*producer, text(i, 100)));
  const fabric::Counters cost = producer->counters() - before;
  EXPECT_EQ(cost.round_trips, kAppends);
  if (GetParam().one_sided) {
    EXPECT_EQ(cost.doorbells, kAppends);
    EXPECT_EQ(cost.completions, kAppends);
    EXPECT_EQ(cost.server_messages, 0u);
    // The tail before, the entry, the READ; twice a pad before the entry that passes the end.
    EXPECT_EQ(cost.work_requests, 3 * kAppends);
    // 32 + 8 + 100 bytes, padded to 64, and the tail.
    EXPECT_EQ(cost.bytes_written, kAppends * (192 + 8));
  } else {
    EXPECT_EQ(cost.doorbells, 2 * kAppends) << "the tail, the request";
    EXPECT_EQ(cost.server_messages, kAppends);
  }
  EXPECT_EQ((client_->counters() - session_before).doorbells, 0u);
}

TEST_P(ExclusiveProducer, ManyEntriesAreOneDoorbellOneRoundTripNoMessage) {
  const auto log = make("log");
  auto producer = quiet(log.id);
  ASSERT_NE(producer, nullptr);
  ASSERT_TRUE(append(*producer, "first"));
  for (const size_t count : {1, 2, 16, 200}) {
    std::vector<std::string> payloads;
    for (size_t i = 0; i < count; ++i) payloads.push_back(text(i, 1 + i % 60));
    const fabric::Counters before = producer->counters();
    const auto last = append_batch(*producer, payloads);
    ASSERT_TRUE(last) << last.error().to_string();
    const fabric::Counters cost = producer->counters() - before;
    EXPECT_EQ(cost.round_trips, 1u);
    if (GetParam().one_sided) {
      EXPECT_EQ(cost.doorbells, 1u);
      EXPECT_EQ(cost.completions, 1u);
      EXPECT_EQ(cost.work_requests, 3u) << count;
      EXPECT_EQ(cost.server_messages, 0u);
    } else {
      EXPECT_EQ(cost.server_messages, 1u);
    }
    EXPECT_EQ(last->index + 1, producer->next_index());
  }
}

TEST_P(ExclusiveProducer, EveryStrategyThatIsDurableHereAppends) {
  const auto log = make("log");
  uint64_t index = 0;
  for (WriteStrategy strategy : {WriteStrategy::kNaive, WriteStrategy::kOutstanding,
                                 WriteStrategy::kDoorbell, WriteStrategy::kTwoSided}) {
    log::LogProducerOptions options;
    options.strategy = strategy;
    auto producer = run(log::LogProducer::open(*client_, log.id, options));
    if (!GetParam().one_sided && strategy != WriteStrategy::kTwoSided) {
      EXPECT_EQ(producer.code(), ErrorCode::kUnsupported);
      continue;
    }
    ASSERT_TRUE(producer) << producer.error().to_string();
    EXPECT_EQ((*producer)->strategy(), strategy);
    for (int i = 0; i < 5; ++i) {
      ++index;
      ASSERT_TRUE(append(**producer, text(index, 200)));
    }
    EXPECT_TRUE(run((*producer)->close()));
  }
  const auto all = read_all(*client_, log.id);
  ASSERT_EQ(all.size(), index);
  for (const Read& entry : all) EXPECT_TRUE(is_text(entry.index, entry.payload));
}

TEST_P(ExclusiveProducer, GatheredPiecesAreOneEntry) {
  const auto log = make("log");
  auto producer = produce(*client_, log.id);
  ASSERT_NE(producer, nullptr);
  const std::string pieces[] = {"head ", "", text(7, 1000), " tail"};
  std::vector<std::span<const std::byte>> spans;
  for (const auto& piece : pieces) spans.push_back(std::as_bytes(std::span(piece)));
  const auto appended = run(producer->append_gather(spans));
  ASSERT_TRUE(appended) << appended.error().to_string();
  EXPECT_EQ(appended->index, 1u);
  ASSERT_TRUE(run(producer->publish()));
  EXPECT_EQ(read_all(*client_, log.id),
            (std::vector<Read>{{1, "head " + text(7, 1000) + " tail"}}));
}

TEST_P(ExclusiveProducer, ReadersSeeWhatIsPublishedAndNothingElse) {
  const auto log = make("log");
  auto producer = quiet(log.id);
  auto from = reader(*client_, log.id);
  ASSERT_TRUE(producer && from);
  ASSERT_TRUE(append(*producer, "one"));
  EXPECT_EQ(read(*from).code(), ErrorCode::kNotFound) << "durable, but not published";
  ASSERT_TRUE(append(*producer, "two"));
  EXPECT_EQ(read(*from)->payload, "one") << "published in front of the second";
  EXPECT_EQ(read(*from).code(), ErrorCode::kNotFound);
  EXPECT_EQ(run(client_->open("log"))->next_index, 2u);
  ASSERT_TRUE(run(producer->publish()));
  EXPECT_EQ(read(*from)->payload, "two");
  EXPECT_EQ(read(*from).code(), ErrorCode::kNotFound);
  EXPECT_EQ(from->position(), producer->tail_lsn());
  EXPECT_EQ(from->tail_lsn(), producer->tail_lsn());
}

TEST_P(ExclusiveProducer, IdleProducerPublishesByItself) {
  const auto log = make("log");
  log::LogProducerOptions options;
  options.publish_delay_ns = 1'000'000;
  auto producer = produce(*client_, log.id, options);
  auto from = reader(*client_, log.id);
  ASSERT_TRUE(producer && from);
  ASSERT_TRUE(append(*producer, "one"));
  const auto entry = run(from->follow(kPatientTimeoutNs));
  ASSERT_TRUE(entry) << entry.error().to_string();
  EXPECT_EQ(entry->index, 1u);
  // And then it is quiet.
  const fabric::Counters before = producer->counters();
  let_time_pass(20'000'000);
  EXPECT_EQ((producer->counters() - before).doorbells, 0u);
}

TEST_P(ExclusiveProducer, FullLogIsBackPressureUntilSomebodyTrims) {
  const auto log = make("log", 32 << 10);
  auto producer = produce(*client_, log.id);
  ASSERT_NE(producer, nullptr);
  std::vector<log::Appended> at;
  Result<log::Appended> last = make_error(ErrorCode::kIo);
  do {
    last = append(*producer, text(at.size() + 1, 900));
    if (last) at.push_back(*last);
    ASSERT_LT(at.size(), 40u);
  } while (last);
  EXPECT_EQ(last.code(), ErrorCode::kBackPressure);
  const uint64_t count = at.size();
  EXPECT_GE(count, 30u);
  EXPECT_EQ(producer->next_index(), count + 1);
  EXPECT_EQ(append_batch(*producer, {"small", text(1, 900)}).code(), ErrorCode::kBackPressure);
  ASSERT_TRUE(run(producer->publish()));
  ASSERT_TRUE(run(client_->trim(log.id, at[10].lsn)));
  for (uint64_t i = 1; i <= 10; ++i) {
    ASSERT_TRUE(append(*producer, text(count + i, 900))) << i;
  }
  ASSERT_TRUE(run(producer->publish()));
  const auto all = read_all(*client_, log.id);
  ASSERT_EQ(all.size(), count);
  EXPECT_EQ(all.front().index, 11u);
  for (const Read& entry : all) EXPECT_TRUE(is_text(entry.index, entry.payload));
}

TEST_P(ExclusiveProducer, TrimOldestMakesRoomByItself) {
  const auto log = make("log", 32 << 10, FullPolicy::kTrimOldest);
  auto producer = produce(*client_, log.id);
  ASSERT_NE(producer, nullptr);
  base::Random random(3);
  uint64_t index = 0;
  const fabric::Counters before = producer->counters();
  while (producer->tail_lsn() < 10 * (32 << 10)) {
    std::vector<std::string> batch;
    for (uint64_t i = 0; i < 1 + random.below(6); ++i) {
      batch.push_back(text(++index, 1 + random.below(1500)));
    }
    const auto last = append_batch(*producer, batch);
    ASSERT_TRUE(last) << last.error().to_string();
  }
  if (GetParam().one_sided) {
    EXPECT_LT((producer->counters() - before).server_messages, 120u) << "an eighth at a time";
  }
  ASSERT_TRUE(run(producer->publish()));
  const auto all = read_all(*client_, log.id);
  ASSERT_FALSE(all.empty());
  EXPECT_GT(all.front().index, 1u);
  EXPECT_EQ(all.back().index, index);
  for (const Read& entry : all) EXPECT_TRUE(is_text(entry.index, entry.payload));
}

base::Task<void> append_text(log::LogProducer& producer, std::string payload,
                             std::vector<Result<log::Appended>>& results, size_t at) {
  results[at] = co_await producer.append(std::as_bytes(std::span(payload)));
}

TEST_P(ExclusiveProducer, ManyAtOnceKeepTheOrderOfTheirCallsAlsoWithoutRoom) {
  const auto log = make("log", 16 << 10, FullPolicy::kTrimOldest);
  auto producer = produce(*client_, log.id);
  ASSERT_NE(producer, nullptr);
  constexpr size_t kMany = 150;
  std::vector<Result<log::Appended>> results(kMany, make_error(ErrorCode::kIo));
  std::vector<base::Task<void>> tasks;
  for (size_t i = 0; i < kMany; ++i) {
    tasks.push_back(append_text(*producer, text(i + 1, 20 + i * 37 % 900), results, i));
  }
  run_together(std::move(tasks));
  for (size_t i = 0; i < kMany; ++i) {
    ASSERT_TRUE(results[i]) << i << ": " << results[i].error().to_string();
    EXPECT_EQ(results[i]->index, i + 1);
  }
  ASSERT_TRUE(run(producer->publish()));
  const auto all = read_all(*client_, log.id);
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all.back().index, kMany);
  for (const Read& entry : all) EXPECT_TRUE(is_text(entry.index, entry.payload));
}

TEST_P(ExclusiveProducer, SmallestAndLargestEntries) {
  const auto log = make("log", 5 << 20, FullPolicy::kTrimOldest);
  auto producer = produce(*client_, log.id);
  auto from = reader(*client_, log.id);
  ASSERT_TRUE(producer && from);
  uint64_t index = 0;
  for (int round = 0; round < 6; ++round) {
    for (const size_t bytes : {size_t{1}, log::kMaxEntryBytes, size_t{1}, size_t{5000}}) {
      ++index;
      const auto appended = append(*producer, text(index, bytes));
      ASSERT_TRUE(appended) << appended.error().to_string();
    }
    ASSERT_TRUE(run(producer->publish()));
    for (uint64_t i = index - 3; i <= index; ++i) {
      const auto entry = read(*from);
      ASSERT_TRUE(entry) << entry.error().to_string();
      EXPECT_EQ(entry->index, i);
      EXPECT_TRUE(is_text(i, entry->payload)) << i;
    }
  }
  EXPECT_EQ(append(*producer, std::string(log::kMaxEntryBytes + 1, 'x')).code(),
            ErrorCode::kTooLarge);
}

TEST_P(ExclusiveProducer, WrongInputWritesNothing) {
  const auto log = make("log", 32 << 10);
  auto producer = produce(*client_, log.id);
  ASSERT_NE(producer, nullptr);
  EXPECT_EQ(append(*producer, "").code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(append_batch(*producer, {}).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(append_batch(*producer, {"one", ""}).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(append_batch(*producer, std::vector<std::string>(257, "x")).code(),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(append(*producer, std::string(20'000, 'x')).code(), ErrorCode::kTooLarge);
  EXPECT_EQ(append_batch(*producer, std::vector<std::string>(4, std::string(10'000, 'x'))).code(),
            ErrorCode::kTooLarge);
  const std::span<const std::byte> nothing[] = {{}, {}};
  EXPECT_EQ(run(producer->append_gather(nothing)).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(producer->next_index(), 1u);
  EXPECT_TRUE(append(*producer, "but this"));
  ASSERT_TRUE(run(producer->publish()));
  EXPECT_EQ(read_all(*client_, log.id), (std::vector<Read>{{1, "but this"}}));
}

}  // namespace
}  // namespace pmstore::scenario
