// A data server in memory, on the local fabric of a FilesWorld: it can be crashed and started again
// at the same address.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "fs/file_area.h"
#include "fs/files_server.h"
#include "model/page_bytes.h"
#include "persist/pool.h"
#include "pmstore/server.h"
#include "tests/unit/fs/service/files_world.h"

namespace pmstore::fs {

class DataServerPool {
 public:
  DataServerPool(FilesWorld& world, std::string name, uint64_t file_bytes = 4 << 20,
                 persist::Domain domain = persist::Domain::kCpuCache)
      : world_(world),
        uri_{fabric::Scheme::kLocal, std::move(name), 0},
        domain_(domain),
        region_((16 << 20) + file_bytes) {
    pool_ = persist::Pool::in_region(region_.bytes(), domain_, true).value();
    FormatOptions format;
    format.rings = 0;
    format.log_bytes = 0;
    format.shard_log_bytes = 1 << 20;
    format.file_bytes = file_bytes;
    EXPECT_TRUE(format_pool(*pool_, format));
    start();
  }
  ~DataServerPool() {
    if (server_ != nullptr) stop();
  }

  Status try_start(bool data_server = true) {
    ServerOptions options;
    options.lease_ms = FilesWorld::kLeaseMs;
    options.discipline = LockDiscipline::kCpu;
    server_ = world_.run(Server::start(world_.executor(), *pool_, options)).value();
    FilesServerOptions files;
    files.lease_ms = FilesWorld::kLeaseMs;
    files.data_server = data_server;
    auto started = world_.run(FilesServer::start(world_.executor(), *pool_, *server_, files));
    if (!started) {
      server_.reset();
      return started.error();
    }
    files_ = std::move(*started);
    const auto listening = world_.run(server_->listen(uri_));
    EXPECT_TRUE(listening) << listening.error().to_string();
    return {};
  }
  void start(bool data_server = true) {
    const Status started = try_start(data_server);
    ASSERT_TRUE(started) << started.error().to_string();
  }
  void stop() {
    world_.run(files_->stop());
    EXPECT_TRUE(world_.run(server_->stop()));
    server_.reset();
    files_.reset();
  }
  // Everything that is not in the pool is gone.
  void crash() {
    server_.reset();
    files_.reset();
    pool_ = persist::Pool::in_region(region_.bytes(), domain_, false).value();
  }

  std::string uri() const { return uri_.to_string(); }
  uint64_t stat(const char* name) {
    return nlohmann::json::parse(server_->stat_json())["files"][name].get<uint64_t>();
  }
  bool serves_names() const { return files_->serves(); }
  AreaOwner owner() { return FileArea::look(*pool_)->owner(); }
  // Whether no unit has a byte that is not zero.
  bool is_zero() {
    const FileArea area = FileArea::look(*pool_).value();
    const std::span<const std::byte> data = area.data();
    return std::all_of(data.begin(), data.end(), [](std::byte b) { return b == std::byte{0}; });
  }

 private:
  FilesWorld& world_;
  fabric::Uri uri_;
  persist::Domain domain_;
  pmstore::model::PageBytes region_;
  std::unique_ptr<persist::Pool> pool_;
  std::unique_ptr<FilesServer> files_;
  std::unique_ptr<Server> server_;  // goes first
};

}  // namespace pmstore::fs
