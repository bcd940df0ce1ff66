// Fixture of the log service's scenarios: a server on the provider of this run, and clients of it
// on the test's executor. Every scenario runs with one-sided appends, and with two-sided ones,
// where the server's CPU makes them durable.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "log/log_client.h"
#include "log/log_producer.h"
#include "log/log_reader.h"
#include "tests/scenario/harness.h"
#include "tests/scenario/log/log_role.h"

namespace pmstore::scenario {

// A server, by what is durable there.
struct Durability {
  const char* name;
  persist::Domain domain;
  persist::WriteLanding landing;
  bool one_sided;
};
// eadr; adr with writes that land in a cache; and where a device moves the data (the model) adr
// with writes that land in memory.
std::vector<Durability> durabilities_of_this_provider();

#define PMSTORE_LOGS_SCENARIOS(suite)                                            \
  INSTANTIATE_TEST_SUITE_P(                                                      \
      Durability, suite,                                                         \
      ::testing::ValuesIn(::pmstore::scenario::durabilities_of_this_provider()), \
      [](const auto& way) { return std::string(way.param.name); })

struct Read {
  uint64_t index;
  std::string payload;
  bool operator==(const Read&) const = default;
};

// Sees for how long the executor did not run: then its clients renew no lease, and lose those that
// are not longer. A test that loses a lease so has shown nothing, and tries again with a longer
// one.
class StallWatch {
 public:
  explicit StallWatch(base::Executor& executor);
  uint64_t longest_ns() const;

 private:
  base::Task<void> watch();

  base::Executor& executor_;
  uint64_t last_ns_;
  uint64_t longest_ns_ = 0;
  base::Task<void> task_;
};

class LogScenario : public ::testing::TestWithParam<Durability> {
 protected:
  void SetUp() override;
  void TearDown() override;

  void start_server();
  // Starts it anew, empty, with another lease; client_ is a new one.
  void restart_server(uint32_t lease_ms);
  log::LogClientOptions client_options() const;
  std::unique_ptr<log::LogClient> connect();
  template <typename T>
  T run(base::Task<T> task) {
    return executor_.run(std::move(task));
  }
  // Runs all of them at the same time, to their ends.
  void run_together(std::vector<base::Task<void>> tasks);
  void let_time_pass(uint64_t ns);

  // A failed test when they cannot be had.
  log::LogInfo make(std::string_view name, uint64_t bytes = 64 << 10,
                    log::FullPolicy policy = log::FullPolicy::kBackPressure);
  std::unique_ptr<log::LogProducer> produce(log::LogClient& client, uint64_t log,
                                            log::LogProducerOptions options = {});
  std::unique_ptr<log::LogReader> reader(log::LogClient& client, uint64_t log,
                                         log::LogReaderOptions options = {});

  Result<log::Appended> append(log::LogProducer& producer, const std::string& payload);
  Result<log::Appended> append_batch(log::LogProducer& producer,
                                     const std::vector<std::string>& payloads);
  Result<log::Appended> share(log::LogClient& client, uint64_t log, const std::string& payload);
  // The next entry, or why there is none.
  Result<Read> read(log::LogReader& from);
  // Everything from the oldest entry to the published tail; fails the test on anything but whole
  // entries with consecutive indexes.
  std::vector<Read> read_all(log::LogClient& client, uint64_t log);

  // What entry `index` of a test's log holds: says itself when it was mixed up or is torn.
  static std::string text(uint64_t index, size_t bytes);
  static bool is_text(uint64_t index, std::string_view payload);

  LogsSetup setup_;
  TestClock clock_;
  base::Executor executor_{clock_};
  TestMachine machine_{executor_};
  std::unique_ptr<Target> target_;
  std::unique_ptr<log::LogClient> client_;
};

}  // namespace pmstore::scenario
