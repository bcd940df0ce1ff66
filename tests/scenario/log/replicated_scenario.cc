// Replicated logs: appends to three servers, one of them lost, producers that take over.
#include <algorithm>
#include <array>

#include "log/replicated_log.h"
#include "tests/scenario/log/log_scenario.h"

namespace pmstore::scenario {
namespace {

using log::ReplicatedLog;
using log::Takeover;

constexpr size_t kReplicas = 3;
constexpr uint64_t kLogBytes = 256 << 10;

class Replicated : public LogScenario {
 protected:
  void SetUp() override {
    LogScenario::SetUp();
    setup_.area_kib = 4 << 10;
    for (size_t i = 0; i < kReplicas; ++i) start_replica();
  }
  void TearDown() override {
    log_.reset();
    LogScenario::TearDown();
    for (auto& server : servers_) {
      if (server == nullptr) continue;
      EXPECT_TRUE(server->stop()) << "a replica did not end in order";
    }
  }
  void start_replica() {
    auto target = Target::start(executor_, "logs", setup_.to_args());
    ASSERT_TRUE(target) << target.error().to_string();
    servers_.push_back(std::move(*target));
  }
  std::string uri(size_t server) const { return servers_[server]->uri().to_string(); }
  std::vector<std::string> uris(const std::vector<size_t>& which) const {
    std::vector<std::string> all;
    for (const size_t server : which) all.push_back(uri(server));
    return all;
  }
  log::ReplicatedLogOptions how(Takeover takeover = Takeover::kIfFree) const {
    log::ReplicatedLogOptions options;
    options.client = client_options();
    options.producer.takeover = takeover;
    return options;
  }
  void create() {
    const Status made =
        run(ReplicatedLog::create(executor_, "log", {.bytes = kLogBytes}, uris({0, 1, 2}), how()));
    ASSERT_TRUE(made) << made.error().to_string();
  }
  std::unique_ptr<ReplicatedLog> open(const std::vector<size_t>& which,
                                      const log::ReplicatedLogOptions& options) {
    auto opened = run(ReplicatedLog::open(executor_, "log", uris(which), options));
    EXPECT_TRUE(opened) << opened.error().to_string();
    return opened ? std::move(*opened) : nullptr;
  }
  Result<log::Appended> append(ReplicatedLog& log, size_t count = 1) {
    std::vector<std::string> texts;
    for (size_t i = 0; i < count; ++i) texts.push_back(text(log.next_index() + i, 100));
    std::vector<std::span<const std::byte>> payloads;
    for (const std::string& each : texts) payloads.push_back(std::as_bytes(std::span(each)));
    return run(log.append_batch(payloads));
  }
  // What readers see at one replica.
  std::vector<Read> entries_at(size_t server) {
    std::vector<Read> all;
    auto client =
        run(log::LogClient::connect(executor_, servers_[server]->uri(), client_options()));
    EXPECT_TRUE(client) << client.error().to_string();
    if (!client) return all;
    const auto info = run((*client)->open("log"));
    EXPECT_TRUE(info) << info.error().to_string();
    if (!info) return all;
    log::LogReaderOptions reading;
    reading.current_replica = true;
    auto from = reader(**client, info->id, reading);
    if (from == nullptr) return all;
    while (true) {
      auto entry = read(*from);
      if (!entry) {
        EXPECT_EQ(entry.code(), ErrorCode::kNotFound) << entry.error().to_string();
        return all;
      }
      all.push_back(std::move(*entry));
    }
  }
  // All of these have the entries 1 to `last`, and nothing else.
  void expect_equal(const std::vector<size_t>& which, uint64_t last) {
    const auto first = entries_at(which.front());
    ASSERT_EQ(first.size(), last);
    for (size_t i = 0; i < first.size(); ++i) EXPECT_EQ(first[i].index, i + 1);
    for (const size_t server : which) EXPECT_EQ(entries_at(server), first) << uri(server);
  }

  std::vector<std::unique_ptr<Target>> servers_;
  std::unique_ptr<ReplicatedLog> log_;
};
PMSTORE_LOGS_SCENARIOS(Replicated);

TEST_P(Replicated, AppendsAreOnAllServersAfterOneRoundTripToEach) {
  create();
  log_ = open({1}, how());
  ASSERT_NE(log_, nullptr);
  EXPECT_EQ(log_->replicas(), uris({0, 1, 2}));
  for (size_t i = 0; i < 30; ++i) ASSERT_TRUE(append(*log_, 1 + i % 4));
  ASSERT_TRUE(run(log_->publish()));
  const auto before = log_->counters();
  ASSERT_TRUE(append(*log_, 5));
  const auto after = log_->counters();
  EXPECT_EQ(after.round_trips - before.round_trips, kReplicas);
  if (GetParam().one_sided) {
    EXPECT_EQ(after.server_messages, before.server_messages);
    EXPECT_EQ(after.doorbells - before.doorbells, kReplicas);
  }
  const uint64_t last = log_->next_index() - 1;
  ASSERT_TRUE(run(log_->close()));
  expect_equal({0, 1, 2}, last);
  for (const Read& entry : entries_at(2)) EXPECT_TRUE(is_text(entry.index, entry.payload));
}

struct ReplicatedStream {
  uint64_t acknowledged = 0;
  bool ended = false;
};

base::Task<void> append_until_it_fails(ReplicatedLog& log, std::string name,
                                       ReplicatedStream& stream) {
  for (uint64_t calls = 1;; ++calls) {
    const std::string payload = name + " " + std::to_string(calls);
    const auto appended = co_await log.append(std::as_bytes(std::span(payload)));
    if (!appended) break;
    stream.acknowledged = std::max(stream.acknowledged, appended->index);
  }
  stream.ended = true;
}

base::Task<void> kill_once_acknowledged(base::Executor& executor, Target& target,
                                        const ReplicatedStream& stream) {
  while (stream.acknowledged < 10 && !stream.ended) co_await executor.sleep_for(10'000);
  target.kill();
}

TEST_P(Replicated, ALostServerIsDroppedAndANewOneTakesItsPlace) {
  create();
  log::ReplicatedLogOptions options = how();
  options.client.call_timeout_ns = short_timeout_ns();
  log_ = open({0}, options);
  ASSERT_NE(log_, nullptr);
  std::array<ReplicatedStream, 4> streams;
  std::vector<base::Task<void>> tasks;
  for (size_t i = 0; i < streams.size(); ++i) {
    tasks.push_back(append_until_it_fails(*log_, "stream " + std::to_string(i), streams[i]));
  }
  if (same_thread() || modelled()) {
    // Nothing can be killed there while the test's own coroutines run.
    tasks.clear();
    for (size_t i = 0; i < 20; ++i) ASSERT_TRUE(append(*log_));
    streams[0].acknowledged = 20;
    servers_[1]->kill();
    EXPECT_FALSE(append(*log_));
  } else {
    tasks.push_back(kill_once_acknowledged(executor_, *servers_[1], streams[0]));
    run_together(std::move(tasks));
  }
  uint64_t acknowledged = 0;
  for (const ReplicatedStream& stream : streams)
    acknowledged = std::max(acknowledged, stream.acknowledged);
  EXPECT_GT(acknowledged, 0u);
  EXPECT_FALSE(append(*log_)) << "nobody decided to go on without it";

  options = how(Takeover::kSteal);
  options.drop = uris({1});
  log_ = open({0}, options);
  ASSERT_NE(log_, nullptr);
  EXPECT_EQ(log_->membership(), 2u);
  EXPECT_GT(log_->next_index(), acknowledged) << "what was acknowledged is there";
  const uint64_t oldest = log_->next_index() - 5;
  ASSERT_TRUE(run(log_->trim_below_index(oldest)));
  ASSERT_TRUE(append(*log_, 3));
  start_replica();
  const Status added = run(log_->add(uri(3)));
  ASSERT_TRUE(added) << added.error().to_string();
  ASSERT_TRUE(append(*log_, 2));
  const uint64_t last = log_->next_index() - 1;
  ASSERT_TRUE(run(log_->close()));
  const auto all = entries_at(0);
  ASSERT_EQ(all.size(), last + 1 - oldest);
  EXPECT_EQ(all.front().index, oldest);
  EXPECT_EQ(all.back().index, last);
  EXPECT_EQ(entries_at(2), all);
  EXPECT_EQ(entries_at(3), all);
  servers_[1].reset();
}

base::Task<void> steal_after(base::Executor& executor, std::vector<std::string> servers,
                             log::ReplicatedLogOptions options, uint64_t ns,
                             std::unique_ptr<ReplicatedLog>& thief) {
  co_await executor.sleep_for(ns);
  auto opened = co_await ReplicatedLog::open(executor, "log", std::move(servers), options);
  EXPECT_TRUE(opened) << opened.error().to_string();
  if (opened) thief = std::move(*opened);
}

TEST_P(Replicated, NothingInFlightLandsOnAnyServerOnceTheLogIsStolen) {
  create();
  log_ = open({0}, how());
  ASSERT_NE(log_, nullptr);
  std::array<ReplicatedStream, 4> streams;
  std::unique_ptr<ReplicatedLog> thief;
  std::vector<base::Task<void>> tasks;
  for (size_t i = 0; i < streams.size(); ++i) {
    tasks.push_back(append_until_it_fails(*log_, "old " + std::to_string(i), streams[i]));
  }
  tasks.push_back(steal_after(executor_, uris({2}), how(Takeover::kSteal), 1'000'000, thief));
  run_together(std::move(tasks));
  ASSERT_NE(thief, nullptr);
  uint64_t acknowledged = 0;
  for (const ReplicatedStream& stream : streams) {
    EXPECT_TRUE(stream.ended);
    acknowledged = std::max(acknowledged, stream.acknowledged);
  }
  EXPECT_FALSE(append(*log_)) << "it was fenced, or the log is full";
  EXPECT_GT(thief->next_index(), acknowledged);
  EXPECT_LE(thief->next_index(), acknowledged + 1 + streams.size());
  const auto trimmed = run(thief->trim_below_index(thief->next_index() - 1));
  ASSERT_TRUE(trimmed) << trimmed.error().to_string();
  const auto appended = append(*thief);
  ASSERT_TRUE(appended) << appended.error().to_string();
  ASSERT_TRUE(run(thief->close()));
  const auto all = entries_at(0);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all.back().index, appended->index) << "nothing comes behind it";
  EXPECT_EQ(entries_at(1), all);
  EXPECT_EQ(entries_at(2), all);
}

TEST_P(Replicated, AFollowerOfOneServerSeesWhatAllHave) {
  create();
  log_ = open({0}, how());
  ASSERT_NE(log_, nullptr);
  auto at = run(log::open_current_replica(executor_, "log", uris({2}), client_options()));
  ASSERT_TRUE(at) << at.error().to_string();
  log::LogReaderOptions reading;
  reading.current_replica = true;
  auto from = reader(*at->client, at->info.id, reading);
  ASSERT_NE(from, nullptr);
  for (uint64_t index = 1; index <= 20; ++index) {
    ASSERT_TRUE(append(*log_));
    const auto entry = run(from->follow(kPatientTimeoutNs));
    ASSERT_TRUE(entry) << entry.error().to_string();
    EXPECT_EQ(entry->index, index);
  }
  from.reset();
  at->client.reset();
}

TEST_P(Replicated, AFollowerIsToldWhenItsServerIsDropped) {
  create();
  log_ = open({0}, how());
  ASSERT_NE(log_, nullptr);
  ASSERT_TRUE(append(*log_, 2));
  auto at = run(log::open_current_replica(executor_, "log", uris({2}), client_options()));
  ASSERT_TRUE(at) << at.error().to_string();
  log::LogReaderOptions reading;
  reading.current_replica = true;
  reading.ask_members_ns = 50'000'000;
  auto from = reader(*at->client, at->info.id, reading);
  ASSERT_NE(from, nullptr);
  for (uint64_t i = 0; i < 2; ++i) ASSERT_TRUE(run(from->follow(kPatientTimeoutNs)));
  const auto nothing = run(from->follow(4 * reading.ask_members_ns));
  EXPECT_EQ(nothing.code(), ErrorCode::kTimeout) << "it is current";

  ASSERT_TRUE(run(log_->close()));
  log::ReplicatedLogOptions options = how();
  options.drop = uris({2});
  log_ = open({0}, options);
  ASSERT_NE(log_, nullptr);
  ASSERT_TRUE(append(*log_));
  // Also when one does not wait long at a time.
  Result<log::LogEntry> told = make_error(ErrorCode::kTimeout);
  const uint64_t give_up_ns = executor_.now_ns() + kPatientTimeoutNs;
  while (!told && told.code() == ErrorCode::kTimeout && executor_.now_ns() < give_up_ns) {
    told = run(from->follow(reading.ask_members_ns / 10));
  }
  ASSERT_FALSE(told);
  EXPECT_EQ(told.code(), ErrorCode::kConflict) << told.error().to_string();
  EXPECT_NE(told.error().message.find("was dropped"), std::string::npos) << told.error().message;
  // It knows where it was, and the server that was dropped who the others are.
  auto current = run(log::open_current_replica(executor_, "log", uris({2}), client_options()));
  ASSERT_TRUE(current) << current.error().to_string();
  auto moved = reader(*current->client, current->info.id, reading);
  ASSERT_NE(moved, nullptr);
  moved->seek(from->position());
  const auto entry = run(moved->follow(kPatientTimeoutNs));
  ASSERT_TRUE(entry) << entry.error().to_string();
  EXPECT_EQ(entry->index, 3u);
  moved.reset();
  current->client.reset();
  from.reset();
  at->client.reset();
}

TEST_P(Replicated, AFollowerIsToldWhenTheMembersCannotBeAsked) {
  create();
  auto with = client_options();
  with.connect_timeout_ns = short_timeout_ns();
  with.call_timeout_ns = short_timeout_ns();
  auto at = run(log::open_current_replica(executor_, "log", uris({0}), with));
  ASSERT_TRUE(at) << at.error().to_string();
  log::LogReaderOptions reading;
  reading.current_replica = true;
  reading.ask_members_ns = 50'000'000;
  reading.unknown_ns = 200'000'000;
  auto from = reader(*at->client, at->info.id, reading);
  ASSERT_NE(from, nullptr);
  servers_[1]->kill();
  const auto told = run(from->follow(kPatientTimeoutNs));
  ASSERT_FALSE(told);
  EXPECT_EQ(told.code(), ErrorCode::kDisconnected) << told.error().to_string();
  EXPECT_NE(told.error().message.find("or drop it"), std::string::npos) << told.error().message;
  EXPECT_NE(told.error().message.find(uri(1)), std::string::npos) << told.error().message;
  from.reset();
  at->client.reset();
  servers_[1].reset();
}

}  // namespace
}  // namespace pmstore::scenario
