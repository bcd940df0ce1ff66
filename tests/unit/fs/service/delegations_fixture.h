// Clients of the files of a pool in memory that cache what they have open.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "tests/unit/fs/service/files_world.h"

namespace pmstore::fs {

class FilesDelegations : public testing::Test {
 protected:
  // Counts what it is told to forget, and takes its time.
  class Cache final : public FileCache {
   public:
    explicit Cache(FilesWorld& world) : world_(world) {}
    base::Task<void> forget(Ino ino) override {
      if (takes_ns > 0) co_await world_.executor().sleep_for(takes_ns);
      ++forgotten[ino];
    }
    uint64_t takes_ns = 0;
    std::map<Ino, int> forgotten;

   private:
    FilesWorld& world_;
  };
  struct Client {
    explicit Client(FilesWorld& in) : Client(in, in.options()) {}
    Client(FilesWorld& in, FileSystemOptions options)
        : world(in), cache(in), files(in.connect(std::move(options))) {
      files->set_cache(&cache);
    }
    ~Client() { world.run(files->close()); }
    bool has(const File& file) const { return files->delegated(file.ino()) != nullptr; }
    FilesWorld& world;
    Cache cache;
    std::unique_ptr<FileSystem> files;
  };
  void make(FileSystem& client, std::string_view path, std::string_view text) {
    const auto file = world_.open(client, path);
    world_.write(*file, 0, text);
    EXPECT_TRUE(world_.run(file->close()));
  }
  uint64_t now_ns() { return world_.executor().now_ns(); }
  // An open that is under way.
  struct Opening {
    std::optional<PosixResult<std::unique_ptr<File>>> result;
    base::Task<void> task;
  };
  static base::Task<void> open_into(Opening& opening, FileSystem& client, std::string path,
                                    int flags) {
    opening.result.emplace(co_await client.open(path, flags));
  }
  void begin_open(Opening& opening, FileSystem& client, std::string path, int flags) {
    opening.task = open_into(opening, client, std::move(path), flags);
    opening.task.start();
  }
  void finish(Opening& opening) {
    for (int i = 0; i < 10'000 && !opening.result; ++i) {
      world_.let_time_pass(FilesWorld::kLeaseNs / 1000);
    }
    ASSERT_TRUE(opening.result);
  }

  FilesWorld world_;
};

}  // namespace pmstore::fs
