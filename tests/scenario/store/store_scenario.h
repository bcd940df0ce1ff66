// Fixture of the store scenarios: a server on the provider of this run, and clients of it on the
// test's executor. Every scenario runs under each lock discipline that the provider can have.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "pmstore/client.h"
#include "tests/scenario/harness.h"
#include "tests/scenario/store/store_role.h"

namespace pmstore::scenario {

struct Locks {
  const char* name;
  LockDiscipline discipline;
  persist::Domain domain;
};
// cpu; and where the provider has ordered remote atomics: rnic with one-sided logs and commits, and
// rnic where one-sided writes are not durable, so that logs and commits go through the server.
std::vector<Locks> locks_of_this_provider();

// cpu only: every provider has it.
std::vector<Locks> cpu_locks();

#define PMSTORE_STORE_SCENARIOS_UNDER(suite, locks)                  \
  INSTANTIATE_TEST_SUITE_P(Locks, suite, ::testing::ValuesIn(locks), \
                           [](const auto& of) { return std::string(of.param.name); })
#define PMSTORE_STORE_SCENARIOS(suite) \
  PMSTORE_STORE_SCENARIOS_UNDER(suite, ::pmstore::scenario::locks_of_this_provider())

// The key of the i-th account of a bank.
inline std::string account(uint64_t i) { return "account" + std::to_string(i); }

class StoreScenario : public ::testing::TestWithParam<Locks> {
 protected:
  void SetUp() override;
  void TearDown() override;

  bool rnic() const { return GetParam().discipline == LockDiscipline::kRnic; }
  void start_server();
  std::unique_ptr<Client> connect(ClientOptions options = {});
  template <typename T>
  T run(Task<T> task) {
    return executor_.run(std::move(task));
  }
  // Runs all of them at the same time, to their ends.
  void run_together(std::vector<Task<void>> tasks);
  // The same, and kills the server when `count` has come to `moment`, or has not although all tasks
  // have ended. Sets `dead` right before.
  void run_until_killed(std::vector<Task<void>> tasks, const uint64_t& count, uint64_t moment,
                        bool* dead = nullptr);
  TableId table(Client& client, const std::string& name = "t") {
    auto opened = run(client.open_table(name, true));
    EXPECT_TRUE(opened) << opened.error().to_string();
    return opened ? *opened : TableId{};
  }
  Result<std::string> get(Client& client, std::string_view key) {
    return run(client.get(table_, key));
  }
  Status put(Client& client, std::string_view key, std::string_view value) {
    return run(client.put(table_, key, value));
  }
  // Verbs are run in an emulated guest, where a round trip takes a millisecond; what repeats the
  // same does it less often there, as it runs in full on the other providers.
  static int times(int usual, int emulated) {
    return scheme() == fabric::Scheme::kVerbs ? emulated : usual;
  }
  // What the action cost this client.
  template <typename Action>
  static fabric::Counters cost(Client& client, Action&& action) {
    const fabric::Counters before = client.counters();
    action();
    return client.counters() - before;
  }

  StoreSetup setup_;
  ClientOptions client_options_;
  TestClock clock_;
  Executor executor_{clock_};
  TestMachine machine_{executor_};
  std::unique_ptr<Target> target_;
  std::unique_ptr<Client> client_;
  TableId table_{};
};

}  // namespace pmstore::scenario
