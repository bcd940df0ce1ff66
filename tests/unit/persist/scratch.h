// A folder for the pools of one test, and the fingerprint of a file.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/checksum.h"

namespace pmstore::persist {

// In memory where there is a tmpfs, for speed; removed with everything in it.
class Scratch {
 public:
  Scratch() {
    std::error_code ignored;
    const bool shm =
        std::filesystem::is_directory("/dev/shm", ignored) && access("/dev/shm", W_OK) == 0;
    std::string pattern = (shm ? "/dev/shm" : std::filesystem::temp_directory_path().string()) +
                          std::string("/pmstore-test-XXXXXX");
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::string path(const std::string& name) const { return folder_ + "/" + name; }

 private:
  std::string folder_;
};

inline std::vector<char> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> bytes(std::filesystem::file_size(path));
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  EXPECT_TRUE(file.good() || bytes.empty());
  return bytes;
}

inline void write_file(const std::string& path, const std::vector<char>& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  ASSERT_TRUE(file.good());
}

// Overwrites part of a file in place.
inline void patch_file(const std::string& path, uint64_t offset, const void* bytes, size_t count) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(offset));
  file.write(static_cast<const char*>(bytes), static_cast<std::streamsize>(count));
  ASSERT_TRUE(file.good());
}

inline uint64_t fingerprint(const std::string& path) {
  const auto bytes = read_file(path);
  return base::checksum64(std::as_bytes(std::span(bytes)), bytes.size());
}

}  // namespace pmstore::persist
