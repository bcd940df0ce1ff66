#include "persist/internal/freed_blocks.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "tests/unit/persist/scratch.h"

namespace pmstore::persist::internal {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kHole = 1 << 20;  // 1 MiB

uint64_t blocks_of(int fd) {
  struct stat status {};
  EXPECT_EQ(fstat(fd, &status), 0);
  return static_cast<uint64_t>(status.st_blocks) * 512;
}

// A file of 4 MiB with data in its first half.
base::FileDescriptor half_full(const std::string& path) {
  base::FileDescriptor fd(open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  const std::vector<char> data(2 * kHole, 'd');
  EXPECT_EQ(write(fd.get(), data.data(), data.size()), static_cast<ssize_t>(data.size()));
  EXPECT_EQ(ftruncate(fd.get(), 4 * kHole), 0);
  return fd;
}

// While it lives the descriptor is of a pipe, which has no holes and cannot be synchronized.
class BecomesAPipe {
 public:
  explicit BecomesAPipe(int fd) : fd_(fd), kept_(dup(fd)) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    EXPECT_EQ(dup2(ends[0], fd_), fd_);
    close(ends[0]);
    close(ends[1]);
  }
  ~BecomesAPipe() {
    dup2(kept_, fd_);
    close(kept_);
  }
  BecomesAPipe(const BecomesAPipe&) = delete;
  BecomesAPipe& operator=(const BecomesAPipe&) = delete;

 private:
  int fd_;
  int kept_;
};

TEST(FreedBlocks, WhatFailedOnceIsTriedAgain) {
  const Scratch scratch;
  const auto fd = half_full(scratch.path("file"));
  FreedBlocks freed(fd.get(), "the pool");
  freed.add({0, kHole});
  const uint64_t before = blocks_of(fd.get());
  {
    const BecomesAPipe pipe(fd.get());
    for (int i = 0; i < 2; ++i) {
      const auto released = freed.release(kHole);
      ASSERT_FALSE(released);
      EXPECT_EQ(released.code(), ErrorCode::kIo);
      EXPECT_THAT(released.error().message, HasSubstr("the pool: cannot give blocks"));
    }
  }
  EXPECT_EQ(blocks_of(fd.get()), before);
  while (freed.release(kHole).value()) {
  }
  EXPECT_EQ(blocks_of(fd.get()), before - kHole);
}

TEST(FreedBlocks, AFileThatCannotHaveHolesIsNotAskedAgain) {
  const base::FileDescriptor fd(memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(fd.get(), 4 * kHole), 0);
  ASSERT_EQ(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
  FreedBlocks freed(fd.get(), "the pool");
  freed.add({0, kHole});
  EXPECT_FALSE(freed.release(kHole).value());
  const BecomesAPipe pipe(fd.get());
  freed.add({0, kHole});
  EXPECT_FALSE(freed.release(kHole).value()) << "the pipe would be an error";
}

TEST(FreedBlocks, HolesAreMadeDurableOnceAfterTheyWerePunched) {
  const Scratch scratch;
  const auto fd = half_full(scratch.path("file"));
  FreedBlocks freed(fd.get(), "the pool");
  freed.add({0, kHole});
  const auto asks_the_file = [&] {
    const BecomesAPipe pipe(fd.get());
    const Status durable = freed.make_holes_durable();
    EXPECT_TRUE(durable || durable.code() == ErrorCode::kIo);
    return !durable;
  };
  EXPECT_FALSE(asks_the_file());
  ASSERT_TRUE(freed.release(kHole).value());
  EXPECT_TRUE(asks_the_file());
  EXPECT_TRUE(asks_the_file()) << "it has failed";
  EXPECT_TRUE(freed.make_holes_durable());
  EXPECT_FALSE(asks_the_file());
}

// In the folder of the test, which may be on a disk, and in memory.
TEST(FreedBlocks, HolesAreSmallWhereADiskIsBehindThem) {
  const Scratch scratch;
  const std::string here = "freed_blocks_" + std::to_string(getpid());
  for (const std::string& path : {here, scratch.path("file")}) {
    SCOPED_TRACE(path);
    const auto fd = half_full(path);
    struct statfs system {};
    ASSERT_EQ(fstatfs(fd.get(), &system), 0);
    FreedBlocks freed(fd.get(), path);
    freed.add({0, kHole});
    uint64_t pieces = 0;
    while (freed.release(kHole).value()) ++pieces;
    EXPECT_EQ(pieces, system.f_type == TMPFS_MAGIC ? 1 : kHole / FreedBlocks::kPieceOfADisk);
    unlink(path.c_str());
  }
}

}  // namespace
}  // namespace pmstore::persist::internal
