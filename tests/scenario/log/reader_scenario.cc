// Readers: beside writers that lap them, over damage, in every way to READ.
#include <atomic>
#include <thread>

#include "log/ring_layout.h"
#include "service/link.h"
#include "tests/scenario/log/log_scenario.h"

namespace pmstore::scenario {
namespace {

using log::FullPolicy;

class Readers : public LogScenario {
 protected:
  void SetUp() override {
    LogScenario::SetUp();
    start_server();
  }
  // Writes into the data area of a log, as only a producer may.
  void scribble(uint64_t log, uint64_t offset, std::string_view bytes);
};
PMSTORE_LOGS_SCENARIOS(Readers);

base::Task<Status> write_raw(fabric::Connection& connection, fabric::Batch& batch) {
  co_return co_await connection.execute(batch);
}

void Readers::scribble(uint64_t log, uint64_t offset, std::string_view bytes) {
  auto device = fabric::open_device(scheme(), executor_, TestMachine::test_host());
  ASSERT_TRUE(device);
  const log::ProducerHello hello{log, 1, log::Takeover::kSteal, {}};
  service::LinkOptions options;
  options.service = service::ServiceId::kProducer;
  options.secret = ClientSecret::of_number(99);
  options.connect_timeout_ns = kPatientTimeoutNs;
  auto link = run(service::Link::open(**device, target_->uri(), options, service::bytes_of(hello)));
  ASSERT_TRUE(link) << link.error().to_string();
  log::LogProducerAnswer answer;
  ASSERT_EQ((*link)->body().size(), sizeof answer);
  std::memcpy(&answer, (*link)->body().data(), sizeof answer);
  std::string copy(bytes);
  auto region =
      (*device)->register_memory(std::as_writable_bytes(std::span(copy)), fabric::Access::kLocal);
  ASSERT_TRUE(region);
  fabric::Batch batch;
  batch.write({reinterpret_cast<std::byte*>(copy.data()), static_cast<uint32_t>(copy.size()),
               region->get()},
              answer.data.at(offset));
  ASSERT_TRUE(run(write_raw((*link)->connection(), batch)));
  link->reset();
}

TEST_P(Readers, EveryWindowAndBothWaysToReadGiveTheSame) {
  const auto log = make("log", 256 << 10);
  auto producer = produce(*client_, log.id);
  ASSERT_NE(producer, nullptr);
  constexpr uint64_t kEntries = 120;
  for (uint64_t i = 1; i <= kEntries; ++i) ASSERT_TRUE(append(*producer, text(i, i * 53 % 2500)));
  ASSERT_TRUE(run(producer->publish()));
  for (const uint32_t window : {1u, 256u, 1000u, 4096u, 64u << 10}) {
    for (const bool one_doorbell : {true, false}) {
      log::LogReaderOptions options;
      options.window_bytes = window;
      options.one_doorbell = one_doorbell;
      auto from = reader(*client_, log.id, options);
      ASSERT_NE(from, nullptr);
      for (uint64_t i = 1; i <= kEntries; ++i) {
        const auto entry = read(*from);
        ASSERT_TRUE(entry) << i << ": " << entry.error().to_string();
        ASSERT_EQ(entry->index, i);
        ASSERT_TRUE(is_text(i, entry->payload)) << i;
      }
      EXPECT_EQ(read(*from).code(), ErrorCode::kNotFound);
    }
  }
}

TEST_P(Readers, CountsOfTheirReads) {
  const auto log = make("log", 256 << 10);
  auto producer = produce(*client_, log.id);
  auto from = reader(*client_, log.id);
  ASSERT_TRUE(producer && from);
  const auto cost = [&](auto&& action) {
    const fabric::Counters before = client_->counters();
    action();
    return client_->counters() - before;
  };
  for (uint64_t i = 1; i <= 100; ++i) ASSERT_TRUE(append(*producer, text(i, 100)));
  ASSERT_TRUE(run(producer->publish()));
  // The words first, since where the log begins may have moved; then 19,200 bytes and the words.
  const auto first = cost([&] { ASSERT_TRUE(read(*from)); });
  EXPECT_EQ(first.doorbells, 2u);
  EXPECT_EQ(first.round_trips, 2u);
  EXPECT_EQ(first.work_requests, 3u);
  const auto rest = cost([&] {
    for (uint64_t i = 2; i <= 100; ++i) ASSERT_TRUE(read(*from));
  });
  EXPECT_EQ(rest.doorbells, 0u) << "the window has them all";
  const auto at_tail = cost([&] { EXPECT_FALSE(read(*from)); });
  EXPECT_EQ(at_tail.doorbells, 1u);
  EXPECT_EQ(at_tail.round_trips, 1u);
  EXPECT_EQ(at_tail.completions, 1u);
  ASSERT_TRUE(append(*producer, "new"));
  ASSERT_TRUE(run(producer->publish()));
  const auto next = cost([&] { EXPECT_EQ(read(*from)->payload, "new"); });
  EXPECT_EQ(next.doorbells, 1u) << "words, entries and words again";
  EXPECT_EQ(next.round_trips, 1u);
  EXPECT_EQ(next.work_requests, 3u);
  EXPECT_EQ((first.server_messages + rest.server_messages + next.server_messages), 0u);
}

TEST_P(Readers, SeekGoesToAnyEntryAndToTheTail) {
  const auto log = make("log");
  std::vector<log::Appended> at;
  for (uint64_t i = 1; i <= 20; ++i) at.push_back(*share(*client_, log.id, text(i, 100 * i)));
  auto from = reader(*client_, log.id);
  ASSERT_NE(from, nullptr);
  for (const uint64_t i : {20, 3, 11, 1}) {
    from->seek(at[i - 1].lsn);
    EXPECT_EQ(from->position(), at[i - 1].lsn);
    EXPECT_EQ(read(*from)->index, i);
  }
  ASSERT_TRUE(run(from->seek_to_tail()));
  EXPECT_EQ(read(*from).code(), ErrorCode::kNotFound);
  ASSERT_TRUE(share(*client_, log.id, "new"));
  EXPECT_EQ(read(*from)->payload, "new");
  from->seek(0);
  EXPECT_EQ(read(*from)->index, 1u);
}

TEST_P(Readers, FollowWaitsAndGivesUpInTime) {
  const auto log = make("log");
  auto from = reader(*client_, log.id);
  ASSERT_NE(from, nullptr);
  const uint64_t began_ns = executor_.now_ns();
  EXPECT_EQ(run(from->follow(50'000'000)).code(), ErrorCode::kTimeout);
  EXPECT_GE(executor_.now_ns() - began_ns, 50'000'000u);
  EXPECT_EQ(run(from->follow(0)).code(), ErrorCode::kTimeout);
}

// ---- beside a writer that is faster ----

struct Writing {
  std::atomic<bool> stop{false};
  uint64_t appended = 0;
};

constexpr uint64_t kRestNs = 200'000;

base::Task<void> write_laps(base::Executor& executor, fabric::Uri uri,
                            log::LogClientOptions options, uint64_t log, Writing& writing) {
  auto client = co_await log::LogClient::connect(executor, uri, options);
  EXPECT_TRUE(client) << client.error().to_string();
  if (!client) co_return;
  auto producer = co_await log::LogProducer::open(**client, log, {});
  EXPECT_TRUE(producer) << producer.error().to_string();
  if (!producer) co_return;
  base::Random random(1);
  while (!writing.stop.load()) {
    std::vector<std::string> payloads;
    for (uint64_t i = 0; i < 1 + random.below(8); ++i) {
      payloads.push_back("entry " + std::to_string(++writing.appended) + " ");
      payloads.back().append(random.below(700), static_cast<char>('a' + writing.appended % 26));
    }
    std::vector<std::span<const std::byte>> spans;
    for (const auto& each : payloads) spans.push_back(std::as_bytes(std::span(each)));
    const auto last = co_await (*producer)->append_batch(spans);
    EXPECT_TRUE(last) << last.error().to_string();
    if (!last) co_return;
    // A READ may take as long as many laps there: now and then one has to get through.
    if (late_effects() && random.below(32) == 0) {
      co_await executor.sleep_for(kRestNs);
    } else {
      co_await executor.yield();
    }
  }
  EXPECT_TRUE(co_await (*producer)->close());
}

bool is_whole(uint64_t index, std::string_view payload) {
  const std::string head = "entry " + std::to_string(index) + " ";
  if (!payload.starts_with(head)) return false;
  for (char c : payload.substr(head.size())) {
    if (c != static_cast<char>('a' + index % 26)) return false;
  }
  return true;
}

struct Seen {
  uint64_t entries = 0;
  uint64_t last = 0;
};

constexpr uint64_t kLeastEntries = 10;

// Until then; on a busy machine as long as it takes, up to a minute, to have seen some entries and
// somebody lapped.
base::Task<void> read_beside(log::LogReader& from, base::Executor& executor, uint64_t until_ns,
                             uint64_t pause_ns, Seen& seen, bool& lapped) {
  const uint64_t patience_ns = until_ns + 60'000'000'000;
  while (executor.now_ns() < (lapped && seen.entries > kLeastEntries ? until_ns : patience_ns)) {
    auto entry = co_await from.follow(1'000'000'000);
    if (!entry && entry.code() == ErrorCode::kTrimmed) {
      lapped = true;
      from.seek(0);
      continue;
    }
    EXPECT_TRUE(entry) << entry.error().to_string();
    if (!entry) co_return;
    const std::string_view payload(reinterpret_cast<const char*>(entry->payload.data()),
                                   entry->payload.size());
    EXPECT_TRUE(is_whole(entry->index, payload)) << entry->index << ": " << payload;
    EXPECT_GT(entry->index, seen.last);
    seen.last = entry->index;
    ++seen.entries;
    if (pause_ns > 0 && seen.entries % 16 == 0) co_await executor.sleep_for(pause_ns);
  }
}

TEST_P(Readers, LappedByAFastWriterTheyNeverReturnWrongBytes) {
  const auto log = make("log", 16 << 10, FullPolicy::kTrimOldest);
  Writing writing;
  std::vector<base::Task<void>> tasks;
  std::thread writer;
  const log::LogClientOptions options = client_options();
  const fabric::Uri uri = target_->uri();
  if (same_thread()) {
    executor_.spawn(write_laps(executor_, uri, options, log.id, writing));
  } else {
    writer = std::thread([&] {
      base::RealClock clock;
      base::Executor executor(clock);
      executor.run(write_laps(executor, uri, options, log.id, writing));
    });
  }
  const uint64_t until_ns = executor_.now_ns() + (virtual_time() ? 20'000'000 : 1'500'000'000);
  constexpr std::array<uint64_t, 4> kPausesNs = {0, 300'000, 0, 20'000'000};
  std::array<Seen, 4> seen;
  bool lapped = false;
  std::vector<std::unique_ptr<log::LogReader>> readers;
  for (size_t i = 0; i < seen.size(); ++i) {
    log::LogReaderOptions how;
    how.one_doorbell = i % 2 == 0;
    how.window_bytes = i < 2 ? 64 << 10 : 2048;
    readers.push_back(reader(*client_, log.id, how));
    ASSERT_NE(readers.back(), nullptr);
    tasks.push_back(
        read_beside(*readers.back(), executor_, until_ns, kPausesNs[i], seen[i], lapped));
  }
  run_together(std::move(tasks));
  writing.stop.store(true);
  if (writer.joinable()) writer.join();
  for (const Seen& each : seen) EXPECT_GT(each.entries, kLeastEntries);
  EXPECT_TRUE(lapped);
  if (same_thread()) let_time_pass(100'000'000);  // the writer ends
}

// ---- over damage ----

TEST_P(Readers, DamageIsReportedSkippedAndNeverReturned) {
  const auto log = make("log", 32 << 10);
  std::vector<log::Appended> at;
  for (uint64_t i = 1; i <= 20; ++i) at.push_back(*share(*client_, log.id, text(i, 30 * i)));
  scribble(log.id, at[4].lsn + 40, "#");              // a payload byte
  scribble(log.id, at[9].lsn, std::string(32, 0));    // a header
  scribble(log.id, at[10].lsn, std::string(700, 7));  // two entries and a bit
  auto from = reader(*client_, log.id);
  ASSERT_NE(from, nullptr);
  std::vector<uint64_t> found;
  std::vector<log::DamagedRange> lost;
  while (true) {
    const auto entry = read(*from);
    if (entry) {
      EXPECT_TRUE(is_text(entry->index, entry->payload)) << entry->index;
      found.push_back(entry->index);
      continue;
    }
    if (entry.code() != ErrorCode::kDamaged) {
      EXPECT_EQ(entry.code(), ErrorCode::kNotFound) << entry.error().to_string();
      break;
    }
    EXPECT_EQ(read(*from).code(), ErrorCode::kDamaged) << "it does not go on by itself";
    const auto skipped = run(from->skip_damaged());
    ASSERT_TRUE(skipped) << skipped.error().to_string();
    lost.push_back(*skipped);
  }
  EXPECT_EQ(found, (std::vector<uint64_t>{1, 2, 3, 4, 6, 7, 8, 9, 13, 14, 15, 16, 17, 18, 19, 20}));
  EXPECT_EQ(lost,
            (std::vector<log::DamagedRange>{{at[4].lsn, at[5].lsn}, {at[9].lsn, at[12].lsn}}));
}

TEST_P(Readers, DamageUpToTheTailLeavesTheReaderThere) {
  const auto log = make("log", 32 << 10);
  const auto first = *share(*client_, log.id, "one");
  const auto second = *share(*client_, log.id, "two");
  scribble(log.id, second.lsn + 8, "########");
  auto from = reader(*client_, log.id);
  ASSERT_NE(from, nullptr);
  EXPECT_EQ(read(*from)->payload, "one");
  EXPECT_EQ(read(*from).code(), ErrorCode::kDamaged);
  const auto skipped = run(from->skip_damaged());
  ASSERT_TRUE(skipped) << skipped.error().to_string();
  EXPECT_EQ(*skipped, (log::DamagedRange{first.next_lsn, second.next_lsn}));
  EXPECT_EQ(read(*from).code(), ErrorCode::kNotFound);
}

}  // namespace
}  // namespace pmstore::scenario
