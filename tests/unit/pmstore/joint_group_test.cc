// Steps of transactions of several servers share msyncs with each other and with other commits.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "tests/unit/pmstore/bank.h"

namespace pmstore {
namespace {

using testing::Bank;

Task<Status> put_in_both(Bank& one, Bank& other, std::string key, std::string value) {
  std::vector<Transaction> both;
  both.push_back(one.client().begin());
  both.push_back(other.client().begin());
  both[0].put(one.table(), key, value);
  both[1].put(other.table(), key, value);
  co_return co_await commit_together(std::move(both));
}

Task<Status> put_in_one(Bank& bank, std::string key, std::string value) {
  co_return co_await bank.client().put(bank.table(), key, value);
}

class JointGroup : public ::testing::Test {
 protected:
  static constexpr int kAtOnce = 8;

  JointGroup() {
    for (Bank* const bank : {&paris_, &rome_}) {
      bank->connect();
      for (int i = 0; i < kAtOnce; ++i) {
        EXPECT_TRUE(bank->put("shared" + std::to_string(i), 0));
        EXPECT_TRUE(bank->put("alone" + std::to_string(i), 0));
      }
    }
  }
  // Starts all, and waits for all.
  std::vector<Status> run_all(std::vector<Task<Status>> tasks) {
    for (auto& each : tasks) each.start();
    std::vector<Status> ends;
    for (auto& each : tasks) {
      while (!each.done()) {
        executor_.run(
            [](Executor& executor) -> Task<void> { co_await executor.sleep_for(1000); }(executor_));
      }
      ends.push_back(each.take());
    }
    return ends;
  }

  base::VirtualClock clock_;
  Executor executor_{clock_};
  Bank paris_{executor_, "paris", 11, persist::Domain::kNone};
  Bank rome_{executor_, "rome", 12, persist::Domain::kNone};
};

TEST_F(JointGroup, StepsThatWaitTogetherShareAnMsync) {
  const uint64_t paris = paris_.msyncs();
  const uint64_t rome = rome_.msyncs();
  const auto groups = paris_.stat().at("group_commit");
  std::vector<Task<Status>> tasks;
  for (int i = 0; i < kAtOnce; ++i) {
    tasks.push_back(put_in_both(paris_, rome_, "shared" + std::to_string(i), "1"));
  }
  for (const Status& end : run_all(std::move(tasks))) EXPECT_TRUE(end);
  // Each has two steps at each server that are made durable.
  EXPECT_LE(paris_.msyncs() - paris, kAtOnce / 2u);
  EXPECT_LE(rome_.msyncs() - rome, kAtOnce / 2u);
  const auto now = paris_.stat().at("group_commit");
  EXPECT_EQ(now.at("transactions").get<int>() - groups.at("transactions").get<int>(), 2 * kAtOnce);
  for (int i = 0; i < kAtOnce; ++i) {
    EXPECT_EQ(*paris_.get("shared" + std::to_string(i)), "1");
    EXPECT_EQ(*rome_.get("shared" + std::to_string(i)), "1");
  }
}

TEST_F(JointGroup, OtherCommitsWaitWithThem) {
  const uint64_t paris = paris_.msyncs();
  std::vector<Task<Status>> tasks;
  for (int i = 0; i < kAtOnce; ++i) {
    tasks.push_back(put_in_both(paris_, rome_, "shared" + std::to_string(i), "1"));
    tasks.push_back(put_in_one(paris_, "alone" + std::to_string(i), "1"));
  }
  for (const Status& end : run_all(std::move(tasks))) EXPECT_TRUE(end);
  EXPECT_LE(paris_.msyncs() - paris, kAtOnce / 2u + 1);
}

// Their locks are no conflict for long: what meets a lock of the group comes behind it.
TEST_F(JointGroup, WhatMeetsTheGroupComesBehindIt) {
  for (int round = 0; round < 10; ++round) {
    std::vector<Task<Status>> tasks;
    tasks.push_back(put_in_one(paris_, "shared0", std::to_string(round)));
    tasks.push_back(put_in_both(paris_, rome_, "shared0", std::to_string(round)));
    for (const Status& end : run_all(std::move(tasks))) {
      EXPECT_TRUE(end) << "locked behind the put's group: " << end.error().to_string();
    }
    EXPECT_EQ(*paris_.get("shared0"), *rome_.get("shared0"));
  }
  EXPECT_EQ(paris_.two_phase().at("locked"), 0);
  EXPECT_EQ(paris_.two_phase().at("prepared"), 0);
}

// It writes at one server and reads at the other: prepare is its commit.
TEST_F(JointGroup, ATransactionThatReadsElsewhereSharesAnMsyncToo) {
  const auto one = [](Bank& written, Bank& read, std::string key) -> Task<Status> {
    std::vector<Transaction> both;
    both.push_back(written.client().begin());
    both.push_back(read.client().begin());
    const auto value = co_await both[1].get(read.table(), key);
    if (!value) co_return value.error();
    both[0].put(written.table(), key, *value + "1");
    both[0].insert(written.table(), "new" + key, "1");
    co_return co_await commit_together(std::move(both));
  };
  const uint64_t paris = paris_.msyncs();
  std::vector<Task<Status>> tasks;
  for (int i = 0; i < kAtOnce; ++i) {
    tasks.push_back(one(paris_, rome_, "shared" + std::to_string(i)));
  }
  for (const Status& end : run_all(std::move(tasks))) {
    EXPECT_TRUE(end) << end.error().to_string();
  }
  EXPECT_LE(paris_.msyncs() - paris, kAtOnce / 2u);
  EXPECT_EQ(*paris_.get("newshared3"), "1");
  EXPECT_EQ(*paris_.get("shared3"), "01");
}

// A decision of one meets that of another one, which waits for its drain.
TEST_F(JointGroup, TwoThatSettleAtOnceDecideOnce) {
  size_t open = 0;
  for (int i = 0; i < 4; ++i) {
    {
      Task<Status> moving = put_in_both(paris_, rome_, "shared0", std::to_string(i));
      moving.start();
      while (paris_.two_phase().at("prepared") == 0) {
        executor_.run(
            [](Executor& executor) -> Task<void> { co_await executor.yield(); }(executor_));
      }
      paris_.disconnect();
      rome_.disconnect();
      while (!moving.done()) {
        executor_.run(
            [](Executor& executor) -> Task<void> { co_await executor.sleep_for(1000); }(executor_));
      }
    }
    paris_.connect();
    rome_.connect();
    open += paris_.two_phase().at("prepared").get<size_t>();
    auto at_paris = paris_.another_client();
    auto at_rome = rome_.another_client();
    const auto settle_both = [](Client& one, Client& other) -> Task<Status> {
      std::vector<Client*> both{&one, &other};
      const auto settled = co_await settle(std::move(both));
      co_return settled ? Status() : Status(settled.error());
    };
    std::vector<Task<Status>> tasks;
    tasks.push_back(settle_both(paris_.client(), rome_.client()));
    tasks.push_back(settle_both(*at_paris, *at_rome));
    for (const Status& end : run_all(std::move(tasks))) EXPECT_TRUE(end);
    EXPECT_EQ(paris_.two_phase().at("prepared"), 0);
    EXPECT_EQ(rome_.two_phase().at("prepared"), 0);
    EXPECT_EQ(*paris_.get("shared0"), *rome_.get("shared0"));
  }
  EXPECT_GT(open, 0u);
}

}  // namespace
}  // namespace pmstore
