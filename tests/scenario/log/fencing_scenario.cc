// Who may append: leases, takeovers with writes in flight, silence, a server that dies.
#include "tests/scenario/log/log_scenario.h"

namespace pmstore::scenario {
namespace {

using log::Takeover;

class Fencing : public LogScenario {
 protected:
  void SetUp() override {
    LogScenario::SetUp();
    start_server();
  }
  std::unique_ptr<log::LogProducer> steal(log::LogClient& client, uint64_t log) {
    log::LogProducerOptions options;
    options.takeover = Takeover::kSteal;
    return produce(client, log, options);
  }
};
PMSTORE_LOGS_SCENARIOS(Fencing);

TEST_P(Fencing, WhileOneProducerHasTheLogOthersAreBusy) {
  const auto log = make("log");
  auto other = connect();
  ASSERT_NE(other, nullptr);
  auto producer = produce(*client_, log.id);
  ASSERT_NE(producer, nullptr);
  EXPECT_TRUE(run(client_->open("log"))->exclusive);
  EXPECT_EQ(run(log::LogProducer::open(*other, log.id, {})).code(), ErrorCode::kBusy);
  EXPECT_EQ(share(*other, log.id, "shared").code(), ErrorCode::kBusy);
  EXPECT_EQ(run(other->seal(log.id)).code(), ErrorCode::kBusy);
  ASSERT_TRUE(append(*producer, "one"));
  ASSERT_TRUE(run(producer->close()));
  EXPECT_EQ(append(*producer, "closed").code(), ErrorCode::kDisconnected);
  EXPECT_EQ(run(producer->publish()).code(), ErrorCode::kDisconnected);
  EXPECT_TRUE(run(producer->close())) << "twice is no error";
  EXPECT_TRUE(share(*other, log.id, "two")) << "the lease was given back";
  auto next = produce(*other, log.id);
  ASSERT_NE(next, nullptr);
  EXPECT_EQ(next->next_index(), 3u);
  next.reset();  // without close()
  for (int tries = 0; tries < 1000; ++tries) {
    if (share(*client_, log.id, "three")) break;
    let_time_pass(1'000'000);
  }
  EXPECT_EQ(read_all(*client_, log.id), (std::vector<Read>{{1, "one"}, {2, "two"}, {3, "three"}}));
}

TEST_P(Fencing, ProducerThatComesBackTakesItsOwnLeaseOver) {
  const auto log = make("log");
  auto first = produce(*client_, log.id);
  ASSERT_TRUE(first && append(*first, "one"));
  auto second = produce(*client_, log.id);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->next_index(), 2u) << "what was acknowledged is there, published or not";
  EXPECT_EQ(append(*first, "too late").code(), ErrorCode::kFenced);
  ASSERT_TRUE(append(*second, "two"));
  ASSERT_TRUE(run(second->publish()));
  EXPECT_EQ(read_all(*client_, log.id), (std::vector<Read>{{1, "one"}, {2, "two"}}));
}

struct Stream {
  uint64_t acknowledged = 0;  // index of the last entry, all before it too
  uint64_t calls = 0;
  std::optional<Error> ended;
};

base::Task<void> append_until_it_fails(log::LogProducer& producer, std::string name,
                                       Stream& stream) {
  while (true) {
    const std::string payload = name + " " + std::to_string(++stream.calls);
    auto appended = co_await producer.append(std::as_bytes(std::span(payload)));
    if (!appended) {
      if (!stream.ended) stream.ended = appended.error();
      co_return;
    }
    stream.acknowledged = std::max(stream.acknowledged, appended->index);
  }
}

base::Task<void> steal_after(base::Executor& executor, log::LogClient& client, uint64_t log,
                             uint64_t ns, std::unique_ptr<log::LogProducer>& thief) {
  co_await executor.sleep_for(ns);
  log::LogProducerOptions options;
  options.takeover = Takeover::kSteal;
  auto opened = co_await log::LogProducer::open(client, log, options);
  EXPECT_TRUE(opened) << opened.error().to_string();
  if (!opened) co_return;
  thief = std::move(*opened);
  const std::string first = "the thief's";
  EXPECT_TRUE(co_await thief->append(std::as_bytes(std::span(first))));
}

TEST_P(Fencing, NothingInFlightLandsOnceTheLogIsStolen) {
  const auto log = make("log", 4 << 20, log::FullPolicy::kTrimOldest);
  auto other = connect();
  auto producer = produce(*client_, log.id);
  ASSERT_TRUE(other && producer);
  std::array<Stream, 8> streams;
  std::unique_ptr<log::LogProducer> thief;
  std::vector<base::Task<void>> tasks;
  for (size_t i = 0; i < streams.size(); ++i) {
    tasks.push_back(append_until_it_fails(*producer, "old " + std::to_string(i), streams[i]));
  }
  tasks.push_back(steal_after(executor_, *other, log.id, 3'000'000, thief));
  run_together(std::move(tasks));
  ASSERT_NE(thief, nullptr);
  uint64_t acknowledged = 0;
  for (const Stream& stream : streams) {
    ASSERT_TRUE(stream.ended);
    EXPECT_EQ(stream.ended->code, ErrorCode::kFenced) << stream.ended->to_string();
    acknowledged = std::max(acknowledged, stream.acknowledged);
  }
  EXPECT_GT(acknowledged, 0u);
  EXPECT_EQ(append(*producer, "much too late").code(), ErrorCode::kFenced);
  EXPECT_EQ(run(producer->publish()).code(), ErrorCode::kFenced);
  ASSERT_TRUE(run(thief->publish()));
  const auto all = read_all(*other, log.id);
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all.back().payload, "the thief's") << "nothing comes behind it";
  EXPECT_GT(all.back().index, acknowledged) << "what was acknowledged is there";
  EXPECT_LE(all.back().index, acknowledged + streams.size() + 1);
  for (size_t i = 0; i + 1 < all.size(); ++i) EXPECT_TRUE(all[i].payload.starts_with("old"));
}

TEST_P(Fencing, LogChangesHandsAgainAndAgain) {
  const auto log = make("log", 32 << 10, log::FullPolicy::kTrimOldest);
  auto other = connect();
  ASSERT_NE(other, nullptr);
  std::unique_ptr<log::LogProducer> producers[2];
  uint64_t index = 0;
  for (int turn = 0; turn < 20; ++turn) {
    auto& mine = producers[turn % 2];
    auto& others = producers[1 - turn % 2];
    mine = steal(turn % 2 == 0 ? *client_ : *other, log.id);
    ASSERT_NE(mine, nullptr);
    EXPECT_EQ(mine->next_index(), index + 1);
    for (int i = 0; i < 5; ++i) {
      ++index;
      ASSERT_TRUE(append(*mine, text(index, 300)));
    }
    if (others != nullptr) {
      EXPECT_EQ(append(*others, "late").code(), ErrorCode::kFenced);
    }
  }
  ASSERT_TRUE(run(producers[1]->publish()));
  const auto all = read_all(*client_, log.id);
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all.back().index, index);
  for (const Read& entry : all) EXPECT_TRUE(is_text(entry.index, entry.payload));
}

base::Task<void> sleep_for(base::Executor& executor, uint64_t ns) {
  co_await executor.sleep_for(ns);
}

TEST_P(Fencing, SilentProducerIsFencedAndABusyOneIsNot) {
  // A client on the server's thread is silent only when the server is, too.
  if (same_thread()) return;
  log::LogProducerOptions options;
  options.publish_delay_ns = 3'600'000'000'000;
  log::LogInfo log;
  std::unique_ptr<log::LogProducer> producer;
  uint32_t lease_ms = 600;
  const auto live_through_a_pause = [&]() -> Status {
    PMSTORE_TRY(log, run(client_->create("log", {})));
    PMSTORE_TRY(producer, run(log::LogProducer::open(*client_, log.id, options)));
    PMSTORE_TRY_STATUS(append(*producer, "one"));
    let_time_pass(uint64_t{lease_ms} * 3'500'000);
    PMSTORE_TRY_STATUS(append(*producer, "two"));
    return {};
  };
  for (;; lease_ms *= 2) {
    ASSERT_LT(lease_ms, 60'000u) << "this machine never lets a producer renew its lease";
    ASSERT_NO_FATAL_FAILURE(restart_server(lease_ms));
    const StallWatch watch(executor_);
    const Status lived = live_through_a_pause();
    if (lived) break;
    ASSERT_GT(watch.longest_ns(), uint64_t{lease_ms} * 1'000'000 / 3)
        << "it renews its lease by itself: " << lived.error().to_string();
    producer.reset();
  }
  // And cannot while its executor does not run: then somebody else gets the log. Each try is by a
  // session of its own, as those have the same short lease.
  base::Executor beside(clock_);
  const std::string text = "by somebody else";
  Result<log::Appended> next = make_error(ErrorCode::kBusy);
  const uint64_t give_up_ns = clock_.now_ns() + kPatientTimeoutNs;
  while (!next && clock_.now_ns() < give_up_ns) {
    beside.run(sleep_for(beside, 10'000'000));
    auto other = beside.run(log::LogClient::connect(beside, target_->uri(), client_options()));
    if (other) next = beside.run((*other)->append(log.id, std::as_bytes(std::span(text))));
  }
  ASSERT_TRUE(next) << next.error().to_string();
  const auto late = append(*producer, "three");
  ASSERT_FALSE(late);
  // Its session ran out as well, so nobody can say who has the log now.
  EXPECT_TRUE(late.code() == ErrorCode::kFenced || late.code() == ErrorCode::kCommitUnknown ||
              late.code() == ErrorCode::kDisconnected)
      << late.error().to_string();
  EXPECT_FALSE(append(*producer, "four"));
  const auto what_is_there = [&]() -> Result<std::vector<std::string>> {
    PMSTORE_TRY(auto other,
                run(log::LogClient::connect(executor_, target_->uri(), client_options())));
    PMSTORE_TRY(auto from, run(log::LogReader::open(*other, log.id, {})));
    std::vector<std::string> found;
    for (auto entry = read(*from);; entry = read(*from)) {
      if (!entry && entry.code() == ErrorCode::kNotFound) return found;
      if (!entry) return std::move(entry.error());
      found.push_back(entry->payload);
    }
  };
  auto all = what_is_there();
  for (int tries = 0; !all && tries < 20; ++tries) all = what_is_there();
  ASSERT_TRUE(all) << all.error().to_string();
  ASSERT_GE(all->size(), 3u);
  EXPECT_EQ(all->at(0), "one");
  EXPECT_EQ(all->at(1), "two") << "acknowledged, but not published by its producer";
  for (size_t i = 2; i < all->size(); ++i) EXPECT_EQ(all->at(i), text);
}

TEST_P(Fencing, DeadServerLeavesAppendsInDoubtInBoundedTime) {
  if (same_thread()) return;  // nothing is in flight there while the test can kill anything
  log::LogClientOptions options = client_options();
  options.call_timeout_ns = short_timeout_ns();
  auto client = run(log::LogClient::connect(executor_, target_->uri(), options));
  ASSERT_TRUE(client);
  const auto log = make("log");
  auto producer = produce(**client, log.id);
  auto from = reader(**client, log.id);
  ASSERT_TRUE(producer && from);
  ASSERT_TRUE(append(*producer, "one"));
  target_->kill();
  const auto lost = append(*producer, "two");
  ASSERT_FALSE(lost);
  EXPECT_TRUE(lost.code() == ErrorCode::kCommitUnknown || lost.code() == ErrorCode::kDisconnected)
      << lost.error().to_string();
  const auto later = append(*producer, "three");
  ASSERT_FALSE(later);
  EXPECT_TRUE(later.code() == ErrorCode::kDisconnected || later.code() == ErrorCode::kTimeout)
      << "nothing was written: " << later.error().to_string();
  EXPECT_FALSE(read(*from));
  const auto shared = share(**client, log.id, "shared");
  ASSERT_FALSE(shared);
  EXPECT_TRUE(shared.code() == ErrorCode::kCommitUnknown ||
              shared.code() == ErrorCode::kDisconnected)
      << shared.error().to_string();
  EXPECT_FALSE(run((*client)->open("log")));
}

}  // namespace
}  // namespace pmstore::scenario
