// Banks: servers between which money is moved by transactions of both.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "pmstore/joint_commit.h"
#include "pmstore/server.h"
#include "tests/crash/crash_image.h"
#include "tests/harness/numbered_client.h"

namespace pmstore::testing {

// A server with a pool of its own, and a client of it with a table of accounts.
class Bank {
 public:
  Bank(Executor& executor, std::string name, uint64_t identity,
       persist::Domain domain = persist::Domain::kCpuCache)
      : executor_(executor), name_(std::move(name)), domain_(domain) {
    pool_ = std::move(*persist::Pool::in_region(region_.bytes(), domain_, true));
    FormatOptions format{2, 64 << 10};
    format.identity = identity;
    PMSTORE_CHECK(format_store(*pool_, format).has_value(), "the region is large enough");
    start();
  }
  ~Bank() {
    client_.reset();
    if (server_ != nullptr) {
      EXPECT_TRUE(executor_.run(server_->stop()));
    }
  }

  void start() {
    ServerOptions options;
    options.discipline = LockDiscipline::kCpu;
    options.group_above_ns = 0;
    server_ = std::move(*executor_.run(Server::start(executor_, *pool_, options)));
    uri_ = *executor_.run(server_->listen({fabric::Scheme::kLocal, name_, 0}));
  }
  // As after an end of its process; the memory stays.
  void end_process() { server_.reset(); }
  void restart() {
    end_process();
    pool_ = std::move(*persist::Pool::in_region(region_.bytes(), domain_, false));
    start();
  }
  void connect(uint64_t id = 0) {
    client_ = another_client(id);
    table_ = *executor_.run(client_->open_table("accounts", true));
  }
  std::unique_ptr<Client> another_client(uint64_t id = 0) {
    ClientOptions options;
    options.call_timeout_ns = 50'000'000;
    options.reconnect_timeout_ns = 500'000'000;
    if (id != 0) options.secret = ClientSecret::of_number(id);
    return std::move(*executor_.run(Client::connect(executor_, uri_, options)));
  }
  void disconnect() { client_.reset(); }
  Client& client() { return *client_; }
  TableId table() const { return table_; }
  Result<std::string> get(std::string_view key) { return executor_.run(client_->get(table_, key)); }
  Status put(std::string_view key, int value) {
    const std::string text = std::to_string(value);
    return executor_.run(client_->put(table_, key, text));
  }
  nlohmann::json stat() const { return nlohmann::json::parse(server_->stat_json()); }
  nlohmann::json two_phase() const { return stat().at("two_phase"); }
  uint64_t msyncs() const { return pool_->memory().stats().msyncs; }

 private:
  Executor& executor_;
  std::string name_;
  persist::Domain domain_;
  crash::PageBytes region_{4 << 20};
  std::unique_ptr<persist::Pool> pool_;
  std::unique_ptr<Server> server_;
  fabric::Uri uri_;
  std::unique_ptr<Client> client_;
  TableId table_{};
};

inline Task<Status> move_money(Bank& from, Bank& to, int amount) {
  std::vector<Transaction> both;
  both.push_back(from.client().begin());
  both.push_back(to.client().begin());
  const auto there = co_await both[0].get(from.table(), "account");
  if (!there) co_return there.error();
  const auto here = co_await both[1].get(to.table(), "account");
  if (!here) co_return here.error();
  both[0].put(from.table(), "account", std::to_string(std::stoi(*there) - amount));
  both[1].put(to.table(), "account", std::to_string(std::stoi(*here) + amount));
  // So that each also inserts.
  both[0].put(from.table(), "sent" + *there, *here);
  co_return co_await commit_together(std::move(both));
}

// Two banks with an account each.
class TwoBanks : public ::testing::Test {
 protected:
  static constexpr int kStart = 100;

  explicit TwoBanks(persist::Domain domain = persist::Domain::kCpuCache)
      : paris_(executor_, "paris", 11, domain), rome_(executor_, "rome", 12, domain) {
    for (Bank* const bank : {&paris_, &rome_}) {
      bank->connect();
      EXPECT_TRUE(bank->put("account", kStart));
    }
  }
  template <typename T>
  T run(Task<T> task) {
    return executor_.run(std::move(task));
  }
  void let_time_pass(uint64_t ns) {
    run([](Executor& executor, uint64_t for_ns) -> Task<void> {
      co_await executor.sleep_for(for_ns);
    }(executor_, ns));
  }
  void let_turns_pass(int turns) {
    run([](Executor& executor, int n) -> Task<void> {
      for (int i = 0; i < n; ++i) co_await executor.yield();
    }(executor_, turns));
  }
  template <typename T>
  T finish(Task<T>& task) {
    while (!task.done()) let_time_pass(1000);
    return task.take();
  }
  int balance(Bank& bank) {
    const auto found = bank.get("account");
    EXPECT_TRUE(found) << found.error().to_string();
    return found ? std::stoi(*found) : -1;
  }
  // Both have the transfers through the same one, and nothing is open.
  void expect_whole() {
    EXPECT_EQ(balance(paris_) + balance(rome_), 2 * kStart);
    for (Bank* const bank : {&paris_, &rome_}) {
      EXPECT_EQ(bank->two_phase().at("prepared"), 0);
      EXPECT_EQ(bank->two_phase().at("locked"), 0);
    }
  }

  base::VirtualClock clock_;
  Executor executor_{clock_};
  Bank paris_;
  Bank rome_;
};

}  // namespace pmstore::testing
