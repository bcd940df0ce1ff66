// Several producers at once, through the server: one order for everybody.
#include "tests/scenario/log/log_scenario.h"

namespace pmstore::scenario {
namespace {

class SharedProducers : public LogScenario {
 protected:
  void SetUp() override {
    LogScenario::SetUp();
    start_server();
  }
};
PMSTORE_LOGS_SCENARIOS(SharedProducers);

// Appends batches of one to three entries; notes where each entry came to be.
base::Task<void> append_batches(log::LogClient& client, uint64_t log, std::string name, int batches,
                                std::map<uint64_t, std::string>& acknowledged) {
  for (int i = 0; i < batches; ++i) {
    std::vector<std::string> payloads;
    for (int k = 0; k <= i % 3; ++k) {
      payloads.push_back(name + " " + std::to_string(i) + "." + std::to_string(k) +
                         std::string(static_cast<size_t>(i * 7 % 300), '.'));
    }
    std::vector<std::span<const std::byte>> spans;
    for (const auto& each : payloads) spans.push_back(std::as_bytes(std::span(each)));
    const auto last = co_await client.append_batch(log, spans);
    EXPECT_TRUE(last) << last.error().to_string();
    if (!last) co_return;
    for (size_t k = 0; k < payloads.size(); ++k) {
      const uint64_t index = last->index + 1 - payloads.size() + k;
      EXPECT_TRUE(acknowledged.emplace(index, payloads[k]).second) << "two entries, one number";
    }
  }
}

base::Task<void> follow_all(log::LogReader& from, uint64_t last, std::vector<Read>& all) {
  while (all.empty() || all.back().index < last) {
    const auto entry = co_await from.follow(kPatientTimeoutNs);
    EXPECT_TRUE(entry) << entry.error().to_string();
    if (!entry) co_return;
    all.push_back({entry->index, std::string(reinterpret_cast<const char*>(entry->payload.data()),
                                             entry->payload.size())});
  }
}

TEST_P(SharedProducers, AllReadersSeeOneOrderWithoutGaps) {
  const auto log = make("log", 1 << 20);
  constexpr int kClients = 3;
  constexpr int kBatches = 30;
  constexpr uint64_t kEntries = 2 * kClients * kBatches * 2;  // two coroutines each, 1 to 3 entries
  std::vector<std::unique_ptr<log::LogClient>> clients;
  for (int i = 0; i < kClients; ++i) clients.push_back(connect());
  std::map<uint64_t, std::string> acknowledged;
  std::vector<std::unique_ptr<log::LogReader>> readers;
  std::vector<std::vector<Read>> seen(kClients);
  std::vector<base::Task<void>> tasks;
  for (size_t i = 0; i < kClients; ++i) {
    ASSERT_NE(clients[i], nullptr);
    readers.push_back(reader(*clients[i], log.id));
    ASSERT_NE(readers[i], nullptr);
    tasks.push_back(follow_all(*readers[i], kEntries, seen[i]));
    for (const char* half : {"a", "b"}) {
      tasks.push_back(
          append_batches(*clients[i], log.id, std::to_string(i) + half, kBatches, acknowledged));
    }
  }
  run_together(std::move(tasks));
  ASSERT_EQ(acknowledged.size(), kEntries);
  for (const auto& all : seen) {
    ASSERT_EQ(all.size(), kEntries);
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(all[i].index, i + 1);
      EXPECT_EQ(all[i].payload, acknowledged[i + 1]);
    }
  }
}

TEST_P(SharedProducers, OldestEntriesGoWhereThatIsThePolicy) {
  const auto log = make("log", 16 << 10, log::FullPolicy::kTrimOldest);
  for (uint64_t i = 1; i <= 200; ++i) {
    const auto appended = share(*client_, log.id, text(i, 500));
    ASSERT_TRUE(appended) << appended.error().to_string();
    EXPECT_EQ(appended->index, i);
  }
  const auto all = read_all(*client_, log.id);
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all.back().index, 200u);
  EXPECT_GT(all.size(), 15u);
  for (const Read& entry : all) EXPECT_TRUE(is_text(entry.index, entry.payload));
}

TEST_P(SharedProducers, FullLogIsBackPressureWhereThatIsThePolicy) {
  const auto log = make("log", 16 << 10);
  Result<log::Appended> last = make_error(ErrorCode::kIo);
  uint64_t count = 0;
  do {
    last = share(*client_, log.id, text(count + 1, 500));
    count += last.has_value();
    ASSERT_LT(count, 40u);
  } while (last);
  EXPECT_EQ(last.code(), ErrorCode::kBackPressure);
  ASSERT_TRUE(run(client_->trim_below_index(log.id, 6)));
  EXPECT_TRUE(share(*client_, log.id, text(count + 1, 500)));
  EXPECT_EQ(read_all(*client_, log.id).size(), count - 4);
}

TEST_P(SharedProducers, LargestEntries) {
  const auto log = make("log", 5 << 20, log::FullPolicy::kTrimOldest);
  auto from = reader(*client_, log.id);
  ASSERT_NE(from, nullptr);
  for (uint64_t i = 1; i <= 8; ++i) {
    ASSERT_TRUE(share(*client_, log.id, text(i, log::kMaxEntryBytes)));
    const auto entry = read(*from);
    ASSERT_TRUE(entry) << entry.error().to_string();
    EXPECT_TRUE(is_text(i, entry->payload));
  }
}

}  // namespace
}  // namespace pmstore::scenario
