// Records take extents from the pool and give them back while clients read them one-sided: none is
// told that a key is absent that is there, none loses its connection by a READ of what has gone,
// and what they were told of goes back while they are connected.
#include <random>

#include "tests/scenario/store/store_scenario.h"

namespace pmstore::scenario {
namespace {

constexpr uint64_t kStaying = 24;
constexpr uint64_t kPassing = 1'000;  // more than two frames of 4 MiB
constexpr size_t kPassingBytes = 12'000;

class RecordFramesGrowth : public StoreScenario {
 protected:
  void SetUp() override {
    setup_.pool_mib = 48;
    StoreScenario::SetUp();
    if (client_ == nullptr) return;
    // Both ways to a record: by the index, and by what is remembered.
    for (int i = 0; i < 4; ++i) {
      ClientOptions options;
      options.misses = MissPath::kOneSided;
      if (i % 2 == 0) options.location_cache_entries = 0;
      readers_.push_back(connect(options));
    }
  }
  void TearDown() override {
    for (auto& reader : readers_) run(reader->close());
    readers_.clear();
    StoreScenario::TearDown();
  }
  // Puts or erases so many keys, some in a transaction.
  Task<Status> change(uint64_t from, uint64_t count, bool put) {
    constexpr uint64_t kEach = 8;
    const std::string value(kPassingBytes, 'p');
    for (uint64_t i = from; i < from + count; i += kEach) {
      const auto body = [&](Transaction& tx) -> Task<Status> {
        for (uint64_t j = i; j < std::min(i + kEach, from + count); ++j) {
          const std::string key = "passing" + std::to_string(j);
          if (put) tx.put(table_, key, value);
          if (!put) tx.erase(table_, key);
        }
        co_return Status{};
      };
      const Status changed = co_await retry(*client_, body);
      if (!changed) co_return changed;
    }
    co_return Status{};
  }

  // Waits until no frame is to go any more.
  Task<bool> all_went() {
    constexpr int kLooks = 20'000;
    for (int i = 0; i < kLooks; ++i) {
      const auto stat = co_await client_->server_stat();
      if (stat && stat->find(R"("to_go": 0,)") != std::string::npos) co_return true;
      co_await executor_.sleep_for(100'000);
    }
    co_return false;
  }

  std::vector<std::unique_ptr<Client>> readers_;
};
PMSTORE_STORE_SCENARIOS(RecordFramesGrowth);

struct Looks {
  bool over = false;
  uint64_t found = 0;
  std::vector<std::string> wrong;
};

// Keys that stay, and one of the others, which may be there.
Task<void> look_up(Looks& looks, Client& client, TableId table, uint64_t seed, uint64_t passing) {
  std::mt19937_64 random(seed);
  const std::string passed(kPassingBytes, 'p');
  while (!looks.over && looks.wrong.empty()) {
    co_await client.executor().yield();  // a READ may end without a wait
    const std::string key = "staying" + std::to_string(random() % kStaying);
    const auto got = co_await client.get(table, key);
    if (got && *got == "value of " + key) {
      ++looks.found;
    } else {
      looks.wrong.push_back(key + ": " + (got ? *got : got.error().to_string()));
    }
    const auto other = co_await client.get(table, "passing" + std::to_string(random() % passing));
    const bool right = other ? *other == passed : other.code() == ErrorCode::kNotFound;
    if (!right) looks.wrong.push_back(other ? "another value" : other.error().to_string());
    // An answer tells of frames that go; a client that only READs would hear of them later.
    if (random() % 16 == 0) (void)co_await client.list_tables();
  }
}

TEST_P(RecordFramesGrowth, ReadersFindEveryKeyThatIsThereAndKeepTheirConnections) {
  const auto passing = static_cast<uint64_t>(times(kPassing, kPassing / 2));
  Looks looks;
  for (uint64_t i = 0; i < kStaying; ++i) {
    const std::string key = "staying" + std::to_string(i);
    ASSERT_TRUE(put(*client_, key, "value of " + key));
  }
  const auto all = [&]() -> Task<void> {
    for (int round = 0; round < 2 && looks.wrong.empty(); ++round) {
      for (const bool put : {true, false}) {
        const Status changed = co_await change(0, passing, put);
        if (!changed) looks.wrong.push_back("a change: " + changed.error().to_string());
      }
      if (!co_await all_went()) looks.wrong.push_back("frames that were to go are still there");
    }
    looks.over = true;
  };
  std::vector<Task<void>> tasks;
  tasks.push_back(all());
  for (size_t i = 0; i < readers_.size(); ++i) {
    tasks.push_back(look_up(looks, *readers_[i], table_, i + 1, passing));
  }
  run_together(std::move(tasks));
  ASSERT_TRUE(looks.wrong.empty()) << looks.wrong.front();
  EXPECT_GT(looks.found, 50u);
  for (auto& reader : readers_) EXPECT_EQ(reader->session().reconnects, 0u);
  const auto stat = run(client_->server_stat());
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->find(R"("freed": 0,)"), std::string::npos) << *stat;
}

}  // namespace
}  // namespace pmstore::scenario
