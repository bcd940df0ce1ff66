// Fixture of the scenarios of file data: a server on the provider of this run, a FileData on the
// test's executor, and a link by which the test plays the namespace. Every scenario runs where
// writes are durable one-sided, and where the server's CPU makes them so.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "fs/file_data.h"
#include "service/link.h"
#include "tests/scenario/fs/data/data_role.h"
#include "tests/scenario/harness.h"

namespace pmstore::scenario {

struct DataDurability {
  const char* name;
  persist::Domain domain;
  persist::WriteLanding landing;
  bool one_sided;
};
// eadr; none; and where a device moves the data (the model) adr with writes that land in memory.
std::vector<DataDurability> data_durabilities();

#define PMSTORE_DATA_SCENARIOS(suite)                                                     \
  INSTANTIATE_TEST_SUITE_P(Durability, suite,                                             \
                           ::testing::ValuesIn(::pmstore::scenario::data_durabilities()), \
                           [](const auto& way) { return std::string(way.param.name); })

class DataScenario : public ::testing::TestWithParam<DataDurability> {
 protected:
  using Outcome = Result<fs::DataOutcome>;

  void SetUp() override;
  void TearDown() override;

  template <typename T>
  T run(base::Task<T> task) {
    return executor_.run(std::move(task));
  }
  // Runs all of them at the same time, to their ends.
  void run_together(std::vector<base::Task<void>> tasks);
  std::unique_ptr<fs::FileData> open(fs::FileDataOptions options);
  fs::FileDataOptions data_options() const;

  // ---- the namespace ----
  base::Task<Result<std::vector<std::byte>>> control(uint16_t method, ControlRequest request);
  fs::MapExtent allocate(uint64_t units);
  struct Invalidated {
    fs::MapExtent fresh;
    std::vector<std::byte> seen;  // when the word had changed
  };
  base::Task<Invalidated> invalidate(fs::MapExtent extent);
  std::vector<std::byte> see(const fs::MapExtent& extent, uint64_t offset);

  Outcome write(const fs::MapExtent& extent, uint64_t offset, std::span<const std::byte> bytes);
  Outcome read(const fs::MapExtent& extent, uint64_t offset, std::span<std::byte> into);

  DataSetup setup_;
  TestClock clock_;
  base::Executor executor_{clock_};
  TestMachine machine_{executor_};
  base::Random random_{18};
  std::unique_ptr<Target> target_;
  std::unique_ptr<fabric::Device> device_;
  std::unique_ptr<service::Link> control_;
  std::unique_ptr<fs::FileData> data_;
};

}  // namespace pmstore::scenario
