// Random operations of two clients on files at four data servers, which go away, come back, are
// drained and added, under a namespace server that crashes: against strings in memory.
#include <array>
#include <map>
#include <optional>

#include "base/random.h"
#include "tests/unit/fs/service/data_server_pool.h"

namespace pmstore::fs {
namespace {

class StripedRandom : public testing::TestWithParam<uint64_t> {
 protected:
  static constexpr size_t kFiles = 4;
  static constexpr size_t kMostBytes = 900'000;
  static constexpr size_t kServers = 3;

  void SetUp() override {
    for (size_t i = 0; i < kServers; ++i) {
      servers_.push_back(std::make_unique<DataServerPool>(world_, "server-" + std::to_string(i)));
    }
    for (auto& client : clients_) client = world_.connect();
    for (size_t i = 0; i < kServers; ++i) add(i);
  }
  void TearDown() override {
    for (auto& of_client : open_) {
      for (auto& file : of_client) file.reset();
    }
    for (auto& client : clients_) world_.run(client->close());
  }

  size_t below(size_t bound) { return static_cast<size_t>(random_.below(bound)); }
  static std::string path_of(size_t file) { return "/file" + std::to_string(file); }
  void add(size_t server) {
    const auto added = world_.run(clients_[0]->add_data_server(servers_[server]->uri()));
    ASSERT_TRUE(added) << added.error().to_string();
    index_[server] = *added;
    draining_[server] = false;
  }
  File& open(size_t client, size_t file) {
    auto& opened = open_[client][file];
    if (opened == nullptr) opened = world_.open(*clients_[client], path_of(file));
    return *opened;
  }
  std::string text(size_t bytes) {
    std::string made(bytes, '\0');
    for (char& each : made) each = static_cast<char>('a' + below(26));
    return made;
  }

  void write(size_t client, size_t file) {
    const size_t at = below(kMostBytes);
    const std::string part = text(1 + below(below(8) == 0 ? 400'000 : 5'000));
    world_.write(open(client, file), at, part);
    std::string& expected = expected_[file];
    if (expected.size() < at + part.size()) expected.resize(at + part.size());
    expected.replace(at, part.size(), part);
  }
  void read(size_t client, size_t file) {
    const size_t at = below(kMostBytes);
    const size_t bytes = 1 + below(500'000);
    const std::string& whole = expected_[file];
    const std::string part = at < whole.size() ? whole.substr(at, bytes) : std::string();
    ASSERT_TRUE(world_.read(open(client, file), at, bytes) == part) << path_of(file) << " " << at;
  }
  // While a server is away it may be refused; then the file has not changed.
  void truncate(size_t client, size_t file) {
    const size_t size = below(kMostBytes);
    if (world_.run(open(client, file).truncate(size))) expected_[file].resize(size);
  }
  void punch(size_t client, size_t file) {
    const size_t at = below(kMostBytes);
    const size_t bytes = 1 + below(300'000);
    File& opened = open(client, file);
    if (!world_.run(opened.allocate(AllocateMode::kPunchHole, at, bytes))) return;
    std::string& expected = expected_[file];
    for (size_t i = at; i < std::min(at + bytes, expected.size()); ++i) expected[i] = '\0';
  }
  void replace(size_t client, size_t file) {
    for (auto& of_client : open_) {
      if (of_client[file] == nullptr) continue;
      EXPECT_TRUE(world_.run(of_client[file]->close()));
      of_client[file].reset();
    }
    EXPECT_TRUE(world_.run(clients_[client]->remove(path_of(file))));
    expected_[file].clear();
    open(client, file);
  }

  bool is_away() const { return away_.has_value(); }
  void lose_server() {
    if (is_away()) return;
    away_ = below(kServers);
    servers_[*away_]->crash();
  }
  void find_server() {
    if (!is_away()) return;
    servers_[*away_]->start();
    away_.reset();
    world_.let_time_pass(FilesWorld::kLeaseNs);
  }
  // One at a time, so that there is room.
  void drain() {
    for (const bool drains : draining_) {
      if (drains) return;
    }
    const size_t server = below(kServers);
    if (world_.run(clients_[0]->drain_data_server(index_[server]))) draining_[server] = true;
  }
  void undrain() {
    for (size_t i = 0; i < kServers; ++i) {
      if (!draining_[i]) continue;
      find_server();
      if (world_.run(clients_[0]->drain_data_server(index_[i], true))) {
        draining_[i] = false;
        continue;
      }
      // It was empty, and is gone.
      add(i);
    }
  }
  void crash_names() {
    find_server();
    world_.crash();
    world_.start();
  }

  void step() {
    const size_t client = below(2);
    const size_t file = below(kFiles);
    switch (below(40)) {
      case 0: return truncate(client, file);
      case 1: return punch(client, file);
      case 2: return is_away() ? find_server() : replace(client, file);
      case 3: return lose_server();
      case 4:
      case 5: return find_server();
      case 6: return drain();
      case 7: return undrain();
      case 8: return below(3) == 0 ? crash_names() : find_server();
      case 9: return world_.let_time_pass(below(FilesWorld::kLeaseNs));
      default: break;
    }
    // What lies at a server that is away waits for it.
    if (is_away()) {
      auto waits = open(client, file).pwrite(bytes_of("xyz"), 0);
      waits.start();
      world_.let_time_pass(below(FilesWorld::kLeaseNs));
      find_server();
      for (int i = 0; i < 40 && !waits.done(); ++i) world_.let_time_pass(FilesWorld::kLeaseNs);
      ASSERT_TRUE(waits.done());
      ASSERT_TRUE(waits.take());
      std::string& expected = expected_[file];
      if (expected.size() < 3) expected.resize(3);
      expected.replace(0, 3, "xyz");
    }
    below(2) == 0 ? write(client, file) : read(client, file);
  }

  base::Random random_{GetParam()};
  FilesWorld world_;
  std::vector<std::unique_ptr<DataServerPool>> servers_;
  std::array<uint16_t, kServers> index_{};
  std::array<bool, kServers> draining_{};
  std::optional<size_t> away_;
  std::array<std::unique_ptr<FileSystem>, 2> clients_;
  std::array<std::array<std::unique_ptr<File>, kFiles>, 2> open_;
  std::array<std::string, kFiles> expected_;
};

TEST_P(StripedRandom, FilesReadAsTheyWereWritten) {
  constexpr int kSteps = 400;
  for (int i = 0; i < kSteps; ++i) {
    step();
    if (testing::Test::HasFailure()) FAIL() << "seed " << GetParam() << ", step " << i;
  }
  undrain();
  find_server();
  for (size_t file = 0; file < kFiles; ++file) {
    for (size_t client = 0; client < 2; ++client) {
      EXPECT_TRUE(world_.read(open(client, file), 0, 2 * kMostBytes) == expected_[file])
          << path_of(file) << " by client " << client;
    }
  }
  EXPECT_EQ(world_.stat("deaf"), 0u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, StripedRandom, testing::Values(1, 2, 3, 4, 5, 6));

}  // namespace
}  // namespace pmstore::fs
