// The server dies in the middle of the work and comes back: what was acknowledged is there, what
// was in doubt has an outcome, and that is what happened.
#include <unistd.h>

#include <filesystem>
#include <map>
#include <random>

#include "tests/scenario/store/store_scenario.h"

namespace pmstore::scenario {
namespace {

constexpr int kAccounts = 16;
constexpr int kStart = 1000;
constexpr int kClients = 3;
constexpr int kWorkers = 8;  // per client
constexpr int kMostDeaths = 60;

// One worker's view of itself. Its ledger record holds the number of its last transfer.
struct Worker {
  std::string ledger;
  uint64_t acknowledged = 0;
  std::optional<TxId> doubtful;  // transfer number acknowledged + 1
};

Task<Status> transfer(Transaction& tx, TableId table, const Worker& worker,
                      std::mt19937_64& random) {
  const std::string from = account(random() % kAccounts);
  const std::string to = account(random() % kAccounts);
  const auto balance = co_await tx.get(table, from);
  if (!balance) co_return Error(balance.error());
  const auto other = co_await tx.get(table, to);
  if (!other) co_return Error(other.error());
  if (from != to) {
    tx.put(table, from, std::to_string(std::stoi(*balance) - 1));
    tx.put(table, to, std::to_string(std::stoi(*other) + 1));
  }
  // Now and then it does not fit any more, and moves.
  const std::string padding(random() % 8 == 0 ? random() % 500 : 0, ' ');
  tx.put(table, worker.ledger, std::to_string(worker.acknowledged + 1) + padding);
  co_return Status{};
}

Task<void> work(Client& client, TableId table, Worker& worker, uint64_t seed, uint64_t& transfers) {
  std::mt19937_64 random(seed);
  while (true) {
    Transaction tx = client.begin();
    Status status = co_await transfer(tx, table, worker, random);
    if (status) status = co_await tx.commit();
    if (status) {
      ++worker.acknowledged;
      ++transfers;
      continue;
    }
    if (status.code() == ErrorCode::kConflict) {
      co_await client.executor().sleep_for(random() % 50'000);
      continue;
    }
    if (status.code() == ErrorCode::kCommitUnknown) worker.doubtful = tx.id();
    // Anything else than the loss of the server would be a fault of its own.
    EXPECT_TRUE(status.code() == ErrorCode::kCommitUnknown ||
                status.code() == ErrorCode::kDisconnected || status.code() == ErrorCode::kTimeout)
        << status.error().to_string();
    co_return;
  }
}

class ServerDeath : public StoreScenario {
 protected:
  void SetUp() override {
    setup_.path = "/dev/shm/pmstore-death-" + std::to_string(getpid()) + "-" + GetParam().name;
    std::filesystem::remove(setup_.path);
    StoreScenario::SetUp();
  }
  void TearDown() override {
    StoreScenario::TearDown();
    std::filesystem::remove(setup_.path);
  }

  // Transfers until the server has been killed, after about `transfers` of them.
  void work_until_killed(std::vector<std::unique_ptr<Client>>& clients, uint64_t transfers) {
    uint64_t done = 0;
    std::vector<Task<void>> tasks;
    for (size_t i = 0; i < workers_.size(); ++i) {
      Worker& worker = workers_[i];
      tasks.push_back(work(*clients[i % clients.size()], table_, worker, ++seed_, done));
    }
    run_until_killed(std::move(tasks), done, transfers);
  }

  void settle_doubts(std::vector<std::unique_ptr<Client>>& clients) {
    for (size_t i = 0; i < workers_.size(); ++i) {
      Worker& worker = workers_[i];
      if (!worker.doubtful) continue;
      ++doubts_;
      const auto outcome = run(clients[i % clients.size()]->outcome(*worker.doubtful));
      ASSERT_TRUE(outcome) << outcome.error().to_string();
      if (*outcome == Outcome::kCommitted) ++worker.acknowledged;
      worker.doubtful.reset();
    }
  }

  void expect_consistent(Client& client) {
    int total = 0;
    for (int i = 0; i < kAccounts; ++i) total += std::stoi(*get(client, account(i)));
    EXPECT_EQ(total, kAccounts * kStart);
    for (const Worker& worker : workers_) {
      EXPECT_EQ(std::stoull(*get(client, worker.ledger)), worker.acknowledged) << worker.ledger;
    }
  }

  std::vector<std::unique_ptr<Client>> connect_all() {
    std::vector<std::unique_ptr<Client>> clients;
    for (uint64_t i = 0; i < kClients; ++i) {
      ClientOptions options;
      options.secret = ClientSecret::of_number(1000 + i);
      options.call_timeout_ns = short_timeout_ns();
      clients.push_back(connect(options));
    }
    return clients;
  }

  std::vector<Worker> workers_;
  uint64_t seed_ = 0;
  uint64_t doubts_ = 0;
};
PMSTORE_STORE_SCENARIOS(ServerDeath);

TEST_P(ServerDeath, AcknowledgedIsThereAndDoubtsHaveOutcomes) {
  for (int i = 0; i < kAccounts; ++i) {
    ASSERT_TRUE(put(*client_, account(i), std::to_string(kStart)));
  }
  for (int i = 0; i < kClients * kWorkers; ++i) {
    workers_.push_back({"ledger" + std::to_string(i), 0, {}});
    ASSERT_TRUE(put(*client_, workers_.back().ledger, "0"));
  }
  run(client_->close());
  client_.reset();
  auto clients = connect_all();
  const int deaths = times(6, 3);
  // A death comes when it comes: there are more, until one came at a moment of doubt. One-sided,
  // that moment is too short to wait for.
  const auto goes_on = [&](int death) {
    return death < deaths || (doubts_ == 0 && !rnic() && death < kMostDeaths);
  };
  for (int death = 0; goes_on(death) && !HasFailure(); ++death) {
    work_until_killed(clients, 100 + 57 * static_cast<uint64_t>(death));
    clients.clear();
    target_.reset();
    start_server();
    ASSERT_FALSE(HasFailure());
    clients = connect_all();
    settle_doubts(clients);
    ASSERT_FALSE(HasFatalFailure());
    expect_consistent(*clients[0]);
  }
  if (!rnic()) {
    EXPECT_GT(doubts_, 0u) << "no death came at a moment of doubt";
  }
  for (auto& each : clients) run(each->close());
}

}  // namespace
}  // namespace pmstore::scenario
