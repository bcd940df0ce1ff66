// Files whose data lies at four servers, on every provider.
#include <algorithm>

#include "tests/scenario/fs/fs_scenario.h"

namespace pmstore::scenario {
namespace {

using fs::DataServerState;

class DataServersScenario : public FilesScenario {
 protected:
  static constexpr uint16_t kOthers = 3;

  void SetUp() override {
    start_server();
    FilesSetup data = setup_;
    data.data_server = true;
    for (uint16_t i = 1; i <= kOthers; ++i) {
      auto target = Target::start(executor_, "files", data.to_args());
      ASSERT_TRUE(target) << target.error().to_string();
      others_.push_back(std::move(*target));
      const auto added = run(client_->add_data_server(others_.back()->uri().to_string()));
      ASSERT_TRUE(added) << added.error().to_string();
      ASSERT_EQ(*added, i);
    }
  }
  void TearDown() override {
    if (client_ != nullptr) run(client_->close());
    client_.reset();
    target_.reset();
    others_.clear();
  }

  DataServerState state_of(uint16_t index) {
    const auto servers = run(client_->data_servers());
    EXPECT_TRUE(servers) << servers.error().to_string();
    return servers ? servers->at(index).state : DataServerState::kInUse;
  }
  size_t servers_of(fs::File& file) {
    const auto map = run(file.map(0, uint64_t{1} << 30));
    EXPECT_TRUE(map) << map.error().to_string();
    std::vector<uint16_t> servers;
    for (const auto& extent : map->extents) servers.push_back(extent.place.server);
    std::sort(servers.begin(), servers.end());
    return static_cast<size_t>(std::unique(servers.begin(), servers.end()) - servers.begin());
  }

  std::vector<std::unique_ptr<Target>> others_;
};

TEST_F(DataServersScenario, AnAlignedMebibyteIsFourDoorbellsOneRoundTripAndNoMessage) {
  const auto file = open("/striped");
  ASSERT_NE(file, nullptr);
  write(*file, 0, text_of(2 << 20, 'a'));
  EXPECT_EQ(servers_of(*file), 4u);
  EXPECT_EQ(read(*file, 0, 2 << 20), text_of(2 << 20, 'a'));
  const std::string text = text_of(1 << 20, 'b');
  const fabric::Counters before = client_->counters();
  write(*file, 1 << 20, text);
  const fabric::Counters written = client_->counters() - before;
  EXPECT_EQ(written.doorbells, 4u);
  EXPECT_EQ(written.round_trips, 1u);
  EXPECT_EQ(written.server_messages, 0u);
  const fabric::Counters between = client_->counters();
  EXPECT_EQ(read(*file, 1 << 20, 1 << 20), text);
  const fabric::Counters got = client_->counters() - between;
  EXPECT_EQ(got.doorbells, 4u);
  EXPECT_EQ(got.round_trips, 1u);
  EXPECT_EQ(got.server_messages, 0u);
}

TEST_F(DataServersScenario, AnFsyncIsOneStepAtEachServerInOneRoundTrip) {
  fs::FileSystemOptions options = client_options();
  options.sync = fs::DataSync::kFsync;
  const auto client = connect(std::move(options));
  const auto file = open(*client, "/striped");
  write(*file, 0, text_of(2 << 20, 'a'));
  EXPECT_EQ(read(*file, 0, 2 << 20), text_of(2 << 20, 'a'));
  EXPECT_TRUE(run(file->fsync()));
  for (uint64_t i = 0; i < 8; ++i) write(*file, i * (256 << 10), "visible");
  const fabric::Counters before = client->counters();
  EXPECT_TRUE(run(file->fsync()));
  const fabric::Counters cost = client->counters() - before;
  // And the message with the new time.
  EXPECT_EQ(cost.doorbells, 5u);
  EXPECT_EQ(cost.round_trips, 2u);
  EXPECT_EQ(cost.server_messages, 1u);
  EXPECT_TRUE(run(file->close()));
  run(client->close());
}

TEST_F(DataServersScenario, AnAtomicWriteAcrossServersIsReadAsAWhole) {
  const auto client = connect();
  const auto file = open(*client, "/striped");
  const size_t bytes = 600'000;
  write(*file, 0, std::string(1 << 20, 'a'));
  const auto reader = open("/striped", O_RDONLY);
  EXPECT_EQ(read(*reader, 200'000, bytes), std::string(bytes, 'a'));
  bool ends = false;
  const auto writes = [&]() -> base::Task<void> {
    for (char letter = 'b'; letter < 'l'; ++letter) {
      const std::string text(bytes, letter);
      const auto written =
          co_await file->pwrite(std::as_bytes(std::span(text)), 200'000, {.atomic = true});
      EXPECT_TRUE(written);
    }
    ends = true;
  };
  auto writing = writes();
  writing.start();
  while (!ends) {
    const std::string found = read(*reader, 200'000, bytes);
    ASSERT_EQ(found.size(), bytes);
    EXPECT_EQ(found, std::string(bytes, found[0])) << "a part of a write is seen";
  }
  EXPECT_EQ(read(*reader, 0, 1 << 20), std::string(200'000, 'a') + std::string(bytes, 'k') +
                                           std::string((1 << 20) - 200'000 - bytes, 'a'));
  run(client->close());
}

TEST_F(DataServersScenario, TwoClientsSeeWhatEachOtherWritesAcrossStripes) {
  const auto one = open("/shared");
  const auto client = connect();
  const auto two = open(*client, "/shared");
  ASSERT_TRUE(one != nullptr && two != nullptr);
  std::string expected = text_of(1'700'000, 'c');
  write(*one, 0, expected);
  for (size_t i = 0; i < 12; ++i) {
    const std::string part = text_of(150'000, static_cast<char>('d' + i));
    const size_t at = i * 120'001;
    write(i % 2 == 0 ? *one : *two, at, part);
    expected.replace(at, part.size(), part);
    if (expected.size() < at + part.size()) expected.resize(at + part.size());
  }
  EXPECT_EQ(read(*one, 0, 2'000'000), expected);
  EXPECT_EQ(read(*two, 0, 2'000'000), expected);
  // Truncated by one, so the other's map is stale.
  ASSERT_TRUE(run(one->truncate(300'000)));
  ASSERT_TRUE(run(one->truncate(expected.size())));
  const std::string zeros = expected.substr(0, 300'000) + std::string(expected.size() - 300'000, 0);
  EXPECT_EQ(read(*two, 0, 2'000'000), zeros);
  run(client->close());
}

TEST_F(DataServersScenario, AServerIsDrainedUnderWrites) {
  const auto file = open("/moved");
  ASSERT_NE(file, nullptr);
  std::string expected = text_of(1'500'000, 'e');
  write(*file, 0, expected);
  EXPECT_EQ(read(*file, 0, 2'000'000), expected);
  const auto drained = run(client_->drain_data_server(1));
  ASSERT_TRUE(drained) << drained.error().to_string();
  for (size_t i = 0; i < 100; ++i) {
    const std::string part = text_of(20'000, static_cast<char>('f' + i % 10));
    write(*file, i * 14'000, part);
    expected.replace(i * 14'000, part.size(), part);
  }
  for (int i = 0; i < 600 && state_of(1) != DataServerState::kGone; ++i) {
    let_time_pass(100'000'000);
  }
  EXPECT_EQ(state_of(1), DataServerState::kGone);
  EXPECT_EQ(servers_of(*file), 3u);
  EXPECT_EQ(read(*file, 0, 2'000'000), expected);
}

}  // namespace
}  // namespace pmstore::scenario
