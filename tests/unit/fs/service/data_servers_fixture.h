// Files whose data lies at several servers in memory, which a test adds, drains and crashes.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/unit/fs/service/data_server_pool.h"

namespace pmstore::fs {

// Each part of 1,000 bytes is another one.
inline std::string content(size_t bytes, size_t seed = 0) {
  std::string made(bytes, 'a');
  for (size_t i = 0; i < bytes; ++i) made[i] = static_cast<char>('a' + (i / 1000 + seed) % 26);
  return made;
}

class DataServersTest : public testing::Test {
 protected:
  explicit DataServersTest(persist::Domain domain = persist::Domain::kCpuCache)
      : world_(domain), domain_(domain) {}

  DataServerPool& make(uint64_t bytes = 4 << 20) {
    const std::string name = "data-" + std::to_string(pools_.size() + 1);
    pools_.push_back(std::make_unique<DataServerPool>(world_, name, bytes, domain_));
    return *pools_.back();
  }
  DataServerPool& add(uint64_t bytes = 4 << 20) {
    DataServerPool& pool = make(bytes);
    const auto added = run(client().add_data_server(pool.uri()));
    EXPECT_TRUE(added) << added.error().to_string();
    return pool;
  }
  void drain(uint16_t index) {
    const auto drained = run(client().drain_data_server(index));
    EXPECT_TRUE(drained) << drained.error().to_string();
  }
  DataServerInfo info(uint16_t index) {
    const auto servers = run(client().data_servers());
    EXPECT_TRUE(servers) << servers.error().to_string();
    for (const DataServerInfo& server : *servers) {
      if (server.index == index) return server;
    }
    ADD_FAILURE() << "there is no server " << index;
    return {};
  }
  // The servers of the file's extents, in order.
  std::vector<uint16_t> servers_of(File& file) {
    const auto map = run(file.map(0, uint64_t{1} << 30));
    EXPECT_TRUE(map) << map.error().to_string();
    std::vector<uint16_t> servers;
    for (const MapExtent& extent : map->extents) servers.push_back(extent.place.server);
    return servers;
  }
  size_t extents_at(File& file, uint16_t server) {
    const auto servers = servers_of(file);
    return static_cast<size_t>(std::count(servers.begin(), servers.end(), server));
  }
  FileSystem& client() {
    if (client_ == nullptr) client_ = world_.connect();
    return *client_;
  }
  template <typename T>
  T run(base::Task<T> task) {
    return world_.run(std::move(task));
  }
  void wait_until_gone(uint16_t index) {
    for (int i = 0; i < 100 && info(index).state != DataServerState::kGone; ++i) {
      world_.let_time_pass(FilesWorld::kLeaseNs / 2);
    }
    EXPECT_EQ(info(index).state, DataServerState::kGone);
  }

  FilesWorld world_;
  persist::Domain domain_;
  std::vector<std::unique_ptr<DataServerPool>> pools_;
  std::unique_ptr<FileSystem> client_;
};

// Writes are messages, as on a file.
class DataServersByMessageTest : public DataServersTest {
 protected:
  DataServersByMessageTest() : DataServersTest(persist::Domain::kNone) {}
};

}  // namespace pmstore::fs
