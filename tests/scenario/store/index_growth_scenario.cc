// The hash index grows and shrinks while clients look keys up one-sided, with an old idea of its
// size: none is told that a key is absent that is there, and no absence is believed that has ended.
#include <random>

#include "tests/scenario/store/store_scenario.h"

namespace pmstore::scenario {
namespace {

constexpr int kStaying = 200;

class IndexGrowth : public StoreScenario {
 protected:
  void SetUp() override {
    StoreScenario::SetUp();
    if (client_ == nullptr) return;
    ClientOptions options;
    options.misses = MissPath::kOneSided;
    options.location_cache_entries = 0;
    for (int i = 0; i < 4; ++i) readers_.push_back(connect(options));
  }
  void TearDown() override {
    for (auto& reader : readers_) run(reader->close());
    readers_.clear();
    StoreScenario::TearDown();
  }
  static std::string staying(uint64_t i) { return "staying" + std::to_string(i); }
  static std::string passing(uint64_t i) { return "passing" + std::to_string(i); }

  // Puts or erases keys from 0 to `count`, some in a transaction.
  Task<Status> change(int count, bool put) {
    constexpr int kEach = 24;
    for (int from = 0; from < count; from += kEach) {
      const auto body = [&](Transaction& tx) -> Task<Status> {
        for (int i = from; i < std::min(from + kEach, count); ++i) {
          const std::string key = passing(static_cast<uint64_t>(i));
          if (put) tx.put(table_, key, "value of " + key);
          if (!put) tx.erase(table_, key);
        }
        co_return Status{};
      };
      const Status changed = co_await retry(*client_, body);
      if (!changed) co_return changed;
    }
    co_return Status{};
  }

  std::vector<std::unique_ptr<Client>> readers_;
};
PMSTORE_STORE_SCENARIOS(IndexGrowth);

struct Looks {
  bool over = false;
  uint64_t found = 0;
  std::vector<std::string> wrong;
};

Task<void> look_up(Looks& looks, Client& client, TableId table, uint64_t seed) {
  std::mt19937_64 random(seed);
  while (!looks.over && looks.wrong.empty()) {
    co_await client.executor().yield();  // a READ may end without a wait
    const std::string key = "staying" + std::to_string(random() % kStaying);
    const auto got = co_await client.get(table, key);
    if (got && *got == "value of " + key) {
      ++looks.found;
    } else {
      looks.wrong.push_back(key + ": " + (got ? *got : got.error().to_string()));
    }
  }
}

TEST_P(IndexGrowth, ReadersFindEveryKeyThatIsThere) {
  for (uint64_t i = 0; i < kStaying; ++i) {
    ASSERT_TRUE(put(*client_, staying(i), "value of " + staying(i)));
  }
  Looks looks;
  const auto all = [&]() -> Task<void> {
    // The least number of buckets grows from 4,096 records on.
    for (const bool put : {true, false}) {
      const int count = rnic() ? 4'800 : times(8'000, 4'800);
      const Status changed = co_await change(count, put);
      if (!changed) looks.wrong.push_back("a change: " + changed.error().to_string());
    }
    looks.over = true;
  };
  std::vector<Task<void>> tasks;
  tasks.push_back(all());
  for (size_t i = 0; i < readers_.size(); ++i) {
    tasks.push_back(look_up(looks, *readers_[i], table_, i + 1));
  }
  run_together(std::move(tasks));
  ASSERT_TRUE(looks.wrong.empty()) << looks.wrong.front();
  EXPECT_GT(looks.found, 100u);
  const auto stat = run(client_->server_stat());
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->find(R"("splits": 0,)"), std::string::npos) << *stat;
  EXPECT_EQ(stat->find(R"("merges": 0,)"), std::string::npos) << *stat;
}

// A transaction that found keys absent commits only if they still are, whatever has become of their
// buckets: each counter has one increment, by the transaction that found it absent.
Task<void> insert_once(Client& client, TableId table, int keys, uint64_t& inserted,
                       std::vector<std::string>& wrong) {
  for (int i = 0; i < keys && wrong.empty(); ++i) {
    bool absent = false;
    const auto body = [&](Transaction& tx) -> Task<Status> {
      const std::string key = "once" + std::to_string(i);
      const auto got = co_await tx.get(table, key);
      absent = !got && got.code() == ErrorCode::kNotFound;
      if (!got && !absent) co_return Error(got.error());
      // It does not insert the key itself: the absence alone keeps others from doing the same.
      if (absent) tx.insert(table, key + "by", "1");
      if (absent) tx.put(table, key, "1");
      co_return Status{};
    };
    const Status done = co_await retry(client, body);
    if (!done) wrong.push_back(done.error().to_string());
    inserted += done && absent;
  }
}

TEST_P(IndexGrowth, AbsenceIsValidatedWhileBucketsSplit) {
  const int keys = times(2'400, 300);  // two records each
  uint64_t inserted = 0;
  std::vector<std::string> wrong;
  std::vector<Task<void>> tasks;
  for (auto& reader : readers_) {
    tasks.push_back(insert_once(*reader, table_, keys, inserted, wrong));
  }
  run_together(std::move(tasks));
  ASSERT_TRUE(wrong.empty()) << wrong.front();
  EXPECT_EQ(inserted, static_cast<uint64_t>(keys)) << "one transaction each";
}

}  // namespace
}  // namespace pmstore::scenario
