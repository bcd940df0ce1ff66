// What calls of a FileSystem cost, on every provider.
#include "tests/scenario/fs/fs_scenario.h"

namespace pmstore::scenario {
namespace {

class FilesCostScenario : public FilesScenario {
 protected:
  static constexpr size_t kBlock = 4096;

  // An open file with extents whose map is known.
  std::unique_ptr<fs::File> ready_file() {
    auto file = open("/file");
    write(*file, 0, text_of(256u << 10, 'a'));
    EXPECT_EQ(read(*file, 0, kBlock).size(), kBlock);
    return file;
  }
  void expect_one_round(const fabric::Counters& cost, uint64_t messages) {
    EXPECT_EQ(cost.doorbells, 1u);
    EXPECT_EQ(cost.round_trips, 1u);
    EXPECT_EQ(cost.server_messages, messages);
  }
  fabric::Counters cost_of_write(fs::File& file, uint64_t offset) {
    const fabric::Counters before = client_->counters();
    write(file, offset, text_of(kBlock, 'b'));
    const fabric::Counters cost = client_->counters() - before;
    EXPECT_EQ(read(file, offset, kBlock), text_of(kBlock, 'b'));
    return cost;
  }
};

TEST_F(FilesCostScenario, ADurableWriteInPlaceIsOneDoorbellAndNoMessage) {
  start_server();
  const auto file = ready_file();
  for (const uint64_t block : {1, 16, 63}) {
    expect_one_round(cost_of_write(*file, block * kBlock), 0);
  }
}

TEST_F(FilesCostScenario, AReadWithAKnownMapIsOneDoorbellAndNoMessage) {
  start_server();
  const auto file = ready_file();
  const fabric::Counters before = client_->counters();
  EXPECT_EQ(read(*file, 7 * kBlock, kBlock), text_of(256u << 10, 'a').substr(7 * kBlock, kBlock));
  expect_one_round(client_->counters() - before, 0);
}

// DDIO's caches lose what the RNIC has put there, so the server's CPU has to write.
TEST_F(FilesCostScenario, ADurableWriteIsOneMessageWhereOneSidedOnesAreNotDurable) {
  setup_.domain = persist::Domain::kMemoryController;
  setup_.landing = persist::WriteLanding::kLastLevelCache;
  start_server();
  const auto file = ready_file();
  expect_one_round(cost_of_write(*file, 5 * kBlock), 1);
}

// Visible writes are one-sided everywhere; an fsync makes all of them durable by one step.
class FilesSyncCost : public FilesCostScenario {
 protected:
  void expect_one_step(uint64_t step_messages) {
    start_server();
    fs::FileSystemOptions options = client_options();
    options.sync = fs::DataSync::kFsync;
    const auto client = connect(std::move(options));
    const auto file = open(*client, "/file");
    write(*file, 0, text_of(256u << 10, 'a'));
    EXPECT_EQ(read(*file, 0, kBlock).size(), kBlock);
    EXPECT_TRUE(run(file->fsync()));
    constexpr uint64_t kWrites = 12;
    const fabric::Counters before = client->counters();
    for (uint64_t i = 0; i < kWrites; ++i) write(*file, 5 * i * kBlock, text_of(kBlock, 'b'));
    const fabric::Counters writes = client->counters() - before;
    EXPECT_EQ(writes.doorbells, kWrites);
    EXPECT_EQ(writes.round_trips, kWrites);
    EXPECT_EQ(writes.server_messages, 0u);
    const fabric::Counters between = client->counters();
    EXPECT_TRUE(run(file->fsync()));
    const fabric::Counters step = client->counters() - between;
    // And a message with the new time.
    EXPECT_EQ(step.doorbells, 2u);
    EXPECT_EQ(step.round_trips, 2u);
    EXPECT_EQ(step.server_messages, step_messages + 1);
    EXPECT_EQ(read(*file, 55 * kBlock, kBlock), text_of(kBlock, 'b'));
    EXPECT_TRUE(run(file->close()));
    run(client->close());
  }
};

TEST_F(FilesSyncCost, OneStepIsOneReadWhereOneSidedWritesAreDurable) { expect_one_step(0); }

TEST_F(FilesSyncCost, OneStepIsOneMessageWhereTheServersCpuHasToFlush) {
  setup_.domain = persist::Domain::kMemoryController;
  setup_.landing = persist::WriteLanding::kLastLevelCache;
  expect_one_step(1);
}

TEST_F(FilesSyncCost, OneStepIsOneMessageWhereAFileHasToBeSynchronized) {
  setup_.domain = persist::Domain::kNone;
  expect_one_step(1);
}

}  // namespace
}  // namespace pmstore::scenario
