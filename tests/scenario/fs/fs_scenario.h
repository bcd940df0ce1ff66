// Fixture of the file system's scenarios: a server on the provider of this run, and clients of it
// on the test's executor.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fs/file_system.h"
#include "tests/scenario/fs/fs_role.h"
#include "tests/scenario/harness.h"

namespace pmstore::scenario {

class FilesScenario : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  void start_server();
  // Kills it, and starts it at the same address; setup_.path is a file.
  void crash_server();
  fs::FileSystemOptions client_options() const;
  std::unique_ptr<fs::FileSystem> connect() { return connect(client_options()); }
  std::unique_ptr<fs::FileSystem> connect(fs::FileSystemOptions options);
  template <typename T>
  T run(base::Task<T> task) {
    return executor_.run(std::move(task));
  }
  void let_time_pass(uint64_t ns);

  // A failed test when they cannot be had.
  std::unique_ptr<fs::File> open(std::string_view path, int flags = O_RDWR | O_CREAT) {
    return open(*client_, path, flags);
  }
  std::unique_ptr<fs::File> open(fs::FileSystem& client, std::string_view path,
                                 int flags = O_RDWR | O_CREAT);
  void write(fs::File& file, uint64_t offset, std::string_view bytes);
  // At most `bytes`; "errno NAME" when it cannot be read.
  std::string read(fs::File& file, uint64_t offset, size_t bytes);
  std::string read(fs::FileSystem& client, std::string_view path);
  std::vector<std::string> names(fs::FileSystem& client, std::string_view path);

  FilesSetup setup_;
  TestClock clock_;
  base::Executor executor_{clock_};
  TestMachine machine_{executor_};
  std::string folder_;  // of setup_.path, if a test has one
  std::unique_ptr<Target> target_;
  std::unique_ptr<fs::FileSystem> client_;
};

// 0, or the errno of a result.
template <typename T>
int number_of(const fs::PosixResult<T>& result) {
  return result ? 0 : result.number();
}

// Bytes that tell where they belong.
std::string text_of(size_t bytes, char seed);

}  // namespace pmstore::scenario
