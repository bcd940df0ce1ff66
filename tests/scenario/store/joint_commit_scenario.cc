// Transactions of two servers: money moves between accounts at both, and a transaction that reads
// all accounts sees the whole sum.
#include <random>
#include <utility>

#include "pmstore/joint_commit.h"
#include "tests/scenario/store/store_scenario.h"

namespace pmstore::scenario {
namespace {

constexpr uint64_t kJointAccounts = 6;  // at each server
constexpr int kJointStart = 1'000;

// A client of each server.
struct Coordinator {
  std::unique_ptr<Client> clients[2];
};

class JointCommits : public StoreScenario {
 protected:
  void SetUp() override {
    StoreScenario::SetUp();
    if (client_ == nullptr) return;
    auto second = Target::start(executor_, "store", setup_.to_args());
    ASSERT_TRUE(second) << second.error().to_string();
    second_ = std::move(*second);
    for (Coordinator& coordinator : coordinators_) {
      for (int server = 0; server < 2; ++server) {
        coordinator.clients[server] = connect_to(server);
        ASSERT_NE(coordinator.clients[server], nullptr);
      }
    }
    for (int server = 0; server < 2; ++server) {
      Client& client = *coordinators_[0].clients[server];
      tables_[server] = table(client);
      for (uint64_t i = 0; i < kJointAccounts; ++i) {
        ASSERT_TRUE(run(client.put(tables_[server], account(i), std::to_string(kJointStart))));
      }
    }
  }
  void TearDown() override {
    for (Coordinator& coordinator : coordinators_) {
      for (auto& client : coordinator.clients) {
        if (client != nullptr) run(client->close());
        client.reset();
      }
    }
    if (second_ != nullptr) {
      EXPECT_TRUE(second_->stop()) << "the second server did not end in order";
    }
    StoreScenario::TearDown();
  }
  std::unique_ptr<Client> connect_to(int server) {
    if (server == 1) std::swap(target_, second_);
    auto client = connect();
    if (server == 1) std::swap(target_, second_);
    return client;
  }

  // From an account at one server to one at the other.
  Task<Status> move_money(Coordinator& coordinator, int from, uint64_t payer, uint64_t payee) {
    std::vector<Transaction> both;
    both.push_back(coordinator.clients[from]->begin());
    both.push_back(coordinator.clients[1 - from]->begin());
    const auto has = co_await both[0].get(tables_[from], account(payer));
    if (!has) co_return has.error();
    const auto gets = co_await both[1].get(tables_[1 - from], account(payee));
    if (!gets) co_return gets.error();
    both[0].put(tables_[from], account(payer), std::to_string(std::stoi(*has) - 1));
    both[1].put(tables_[1 - from], account(payee), std::to_string(std::stoi(*gets) + 1));
    co_return co_await commit_together(std::move(both));
  }
  Task<void> move_often(Coordinator& coordinator, uint64_t seed, int moves) {
    std::mt19937_64 random(seed);
    while (moves > 0 && wrong_.empty()) {
      const int from = static_cast<int>(random() % 2);
      const Status moved = co_await move_money(coordinator, from, random() % kJointAccounts,
                                               random() % kJointAccounts);
      if (moved) {
        ++moved_;
        --moves;
      } else if (moved.code() == ErrorCode::kConflict) {
        co_await executor_.sleep_for(1'000 + random() % 50'000);
      } else {
        wrong_.push_back("a transfer: " + moved.error().to_string());
      }
    }
    --movers_;
  }
  // The sum of all accounts as one transaction has read them.
  Task<Result<int>> sum(Coordinator& coordinator) {
    std::vector<Transaction> both;
    int all = 0;
    for (int server = 0; server < 2; ++server) {
      both.push_back(coordinator.clients[server]->begin());
      for (uint64_t i = 0; i < kJointAccounts; ++i) {
        const auto has = co_await both.back().get(tables_[server], account(i));
        if (!has) co_return has.error();
        all += std::stoi(*has);
      }
    }
    const Status read = co_await commit_together(std::move(both));
    if (!read) co_return read.error();
    co_return all;
  }
  Task<void> read_often(Coordinator& coordinator) {
    while (movers_ > 0 && wrong_.empty()) {
      const auto all = co_await sum(coordinator);
      if (all) {
        if (*all != kSum) wrong_.push_back("a sum of " + std::to_string(*all));
      } else if (all.code() != ErrorCode::kConflict) {
        wrong_.push_back("a sum: " + all.error().to_string());
      }
      co_await executor_.sleep_for(10'000);
    }
  }

  static constexpr int kSum = 2 * static_cast<int>(kJointAccounts) * kJointStart;
  std::unique_ptr<Target> second_;
  Coordinator coordinators_[4];
  TableId tables_[2] = {};
  int movers_ = 3;
  uint64_t moved_ = 0;
  std::vector<std::string> wrong_;
};
PMSTORE_STORE_SCENARIOS_UNDER(JointCommits, cpu_locks());

TEST_P(JointCommits, SumOfTheAccountsAtBothServersStays) {
  const int moves = times(60, 10);
  std::vector<Task<void>> tasks;
  for (int i = 0; i < movers_; ++i) {
    tasks.push_back(move_often(coordinators_[i], static_cast<uint64_t>(i) + 1, moves));
  }
  tasks.push_back(read_often(coordinators_[3]));
  const int movers = movers_;
  run_together(std::move(tasks));
  ASSERT_TRUE(wrong_.empty()) << wrong_.front();
  EXPECT_EQ(moved_, static_cast<uint64_t>(movers * moves));
  const auto after = run(sum(coordinators_[3]));
  ASSERT_TRUE(after) << after.error().to_string();
  EXPECT_EQ(*after, kSum);
}

// A coordinator that goes with a commit under way, at any moment of it.
TEST_P(JointCommits, WhatACoordinatorLeavesIsSettledWhole) {
  for (int turn = 0; turn < times(12, 3); ++turn) {
    Coordinator leaves;
    for (int server = 0; server < 2; ++server) {
      leaves.clients[server] = connect_to(server);
      ASSERT_NE(leaves.clients[server], nullptr);
    }
    {
      Task<Status> commit = move_money(leaves, turn % 2, 0, 1);
      commit.start();
      const auto some_time = [&]() -> Task<void> {
        co_await executor_.sleep_for(static_cast<uint64_t>(turn) * 20'000);
      };
      run(some_time());
    }
    for (auto& client : leaves.clients) client.reset();
    // A server learns by and by that the coordinator has gone.
    Result<int> all = 0;
    uint64_t waiting = 0;
    for (int i = 0; i < 2'000; ++i) {
      const auto settled =
          run(settle({coordinators_[0].clients[0].get(), coordinators_[0].clients[1].get()}));
      ASSERT_TRUE(settled) << settled.error().to_string();
      EXPECT_EQ(settled->contradicted, 0u);
      all = run(sum(coordinators_[1]));
      waiting = settled->waiting;
      if (all && waiting == 0) break;
      const auto a_while = [&]() -> Task<void> { co_await executor_.sleep_for(5'000'000); };
      run(a_while());
    }
    ASSERT_TRUE(all) << turn << ": " << all.error().to_string();
    EXPECT_EQ(*all, kSum) << turn;
    EXPECT_EQ(waiting, 0u) << turn << ": what it left is settled";
  }
}

}  // namespace
}  // namespace pmstore::scenario
