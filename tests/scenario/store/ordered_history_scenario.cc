// Random transactions that scan, insert, erase and update an ordered table: an order of all of them
// explains what each has seen. Under lock discipline cpu.
#include <random>

#include "tests/scenario/store/history.h"
#include "tests/scenario/store/store_scenario.h"

namespace pmstore::scenario {
namespace {

// Who has made a key what it is: its record says it, or, where it is absent, the record of the same
// name in `erasers`. 0: nobody has touched it. So each version of each key, also an absent one, has
// one writer, and a scan reads every key of its range.
struct OrderedWorkload {
  TableId ordered{};
  TableId erasers{};
  History history;
  uint64_t next_name = 1;
  uint64_t conflicts = 0;
  uint64_t scans = 0;
  std::vector<std::string> errors;
};

constexpr uint64_t kOrderedKeys = 24;

std::string key_name(uint64_t i) { return "r" + std::to_string(100 + i); }

class Attempt {
 public:
  Attempt(OrderedWorkload& work, Client& client, std::mt19937_64& random)
      : work_(work), random_(random), executor_(client.executor()), tx_(client.begin()) {
    record_.name = work.next_name++;
    record_.began = executor_.now_ns();
  }

  Task<Status> run() {
    const size_t steps = 1 + random_() % 3;
    for (size_t i = 0; i < steps; ++i) {
      Status step;
      if (random_() % 3 == 0) {
        step = co_await read_one(key_name(random_() % kOrderedKeys));
      } else {
        step = co_await scan_some();
      }
      if (!step) co_return step;
      if (random_() % 4 != 0) change_one();
    }
    Status done = co_await tx_.commit();
    if (done) {
      record_.ended = executor_.now_ns();
      work_.history.add(std::move(record_));
    }
    co_return std::move(done);
  }

 private:
  // A key that this transaction has read or written before is what it has left there.
  Task<Status> saw(const std::string& key, const std::string* value) {
    const auto mine = mine_.find(key);
    if (mine != mine_.end()) {
      const bool as_left = value == nullptr ? !mine->second : mine->second;
      if (!as_left) co_return make_error(ErrorCode::kDamaged, "own write of " + key + " is hidden");
      co_return Status{};
    }
    uint64_t writer = 0;
    if (value != nullptr) {
      writer = std::stoull(*value);
    } else {
      const auto eraser = co_await tx_.get(work_.erasers, key);
      if (!eraser && eraser.code() != ErrorCode::kNotFound) co_return Error(eraser.error());
      if (eraser) writer = std::stoull(*eraser);
    }
    const auto [before, first] = record_.reads.emplace(key, writer);
    if (!first && before->second != writer) co_return make_error(ErrorCode::kConflict);
    present_[key] = value != nullptr;
    co_return Status{};
  }

  Task<Status> read_one(std::string key) {
    const auto value = co_await tx_.get(work_.ordered, key);
    if (!value && value.code() != ErrorCode::kNotFound) co_return Error(value.error());
    co_return co_await saw(key, value ? &*value : nullptr);
  }

  Task<Status> scan_some() {
    const uint64_t first = random_() % kOrderedKeys;
    const uint64_t end = first + 1 + random_() % (kOrderedKeys - first);
    const auto direction = random_() % 2 == 0 ? ScanDirection::kForward : ScanDirection::kBackward;
    TransactionScan scan = tx_.scan(work_.ordered, {key_name(first), key_name(end)}, direction);
    std::map<std::string, std::string> seen;
    for (;;) {
      PMSTORE_CO_TRY(const std::vector<Record> page,
                     co_await scan.next(1 + static_cast<uint32_t>(random_() % 8)));
      if (page.empty()) break;
      for (const Record& record : page) seen[record.key] = record.value;
    }
    ++work_.scans;
    for (uint64_t i = first; i < end; ++i) {
      const auto at = seen.find(key_name(i));
      const Status same = co_await saw(key_name(i), at == seen.end() ? nullptr : &at->second);
      if (!same) co_return same;
    }
    co_return Status{};
  }

  // One of the keys that were read becomes another version.
  void change_one() {
    if (present_.empty()) return;
    auto chosen = present_.begin();
    std::advance(chosen, random_() % present_.size());
    const std::string key = chosen->first;
    const std::string name = std::to_string(record_.name);
    if (mine_.contains(key)) return;
    record_.writes.push_back(key);
    const bool erase = chosen->second && random_() % 2 == 0;
    mine_[key] = !erase;
    if (erase) {
      tx_.erase(work_.ordered, key);
      tx_.put(work_.erasers, key, name);
    } else {
      tx_.put(work_.ordered, key, name + ":" + std::string(random_() % 4 == 0 ? 400 : 4, 'p'));
    }
  }

  OrderedWorkload& work_;
  std::mt19937_64& random_;
  Executor& executor_;
  Transaction tx_;
  History::Transaction record_;
  std::map<std::string, bool> present_;  // as read
  std::map<std::string, bool> mine_;     // as left by this transaction
};

Task<void> play(OrderedWorkload& work, Client& client, uint64_t seed, int transactions) {
  std::mt19937_64 random(seed);
  for (int i = 0; i < transactions; ++i) {
    Attempt attempt(work, client, random);
    const Status status = co_await attempt.run();
    if (status) continue;
    if (status.code() != ErrorCode::kConflict) {
      work.errors.push_back(status.error().to_string());
      co_return;
    }
    ++work.conflicts;
    co_await client.executor().sleep_for(random() % 20'000);
  }
}

class OrderedHistory : public StoreScenario {};
PMSTORE_STORE_SCENARIOS_UNDER(OrderedHistory, cpu_locks());

TEST_P(OrderedHistory, ScansInsertsAndErasesHaveAnOrder) {
  const char* const late = std::getenv("PMSTORE_TEST_LATE");
  const uint64_t seed = late == nullptr ? 1 : std::strtoull(late, nullptr, 10);
  OrderedWorkload work;
  work.ordered = *run(client_->create_table("ordered", TableKind::kOrdered));
  work.erasers = table(*client_, "erasers");
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 4; ++i) clients.push_back(connect());
  const int players = times(40, 8);
  constexpr int kEach = 15;
  std::vector<Task<void>> tasks;
  for (int i = 0; i < players; ++i) {
    tasks.push_back(play(work, *clients[static_cast<size_t>(i) % clients.size()],
                         seed * 1000 + static_cast<uint64_t>(i), kEach));
  }
  run_together(std::move(tasks));
  EXPECT_TRUE(work.errors.empty()) << work.errors.front();
  EXPECT_GT(work.history.size(), static_cast<size_t>(players * kEach) / 20);
  EXPECT_GT(work.conflicts, 0u) << "nobody met anybody";
  EXPECT_GT(work.scans, 0u);
  const auto wrong = work.history.check();
  EXPECT_FALSE(wrong) << *wrong;
  for (auto& each : clients) run(each->close());
}

}  // namespace
}  // namespace pmstore::scenario
