// Pools in files: free space that is zeroed ahead of the extent that will lie there.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "persist/pool.h"
#include "tests/unit/persist/recorder.h"
#include "tests/unit/persist/scratch.h"

namespace {

// Of all calls of this process, in bytes.
uint64_t searched_for_holes = 0;
uint64_t read_from_files = 0;

}  // namespace

// In place of the C library's.
extern "C" off_t lseek(int fd, off_t offset, int whence) noexcept {
  const auto at = static_cast<off_t>(syscall(SYS_lseek, fd, offset, whence));
  if (whence == SEEK_HOLE && at >= 0) searched_for_holes += static_cast<uint64_t>(at - offset);
  return at;
}

extern "C" ssize_t pread(int fd, void* to, size_t bytes, off_t offset) {
  const auto got = static_cast<ssize_t>(syscall(SYS_pread64, fd, to, bytes, offset));
  if (got > 0) read_from_files += static_cast<uint64_t>(got);
  return got;
}

namespace pmstore::persist {
namespace {

constexpr uint64_t kZeroAheadPoolBytes = 32u << 20;

class ZeroAhead : public testing::Test {
 protected:
  std::unique_ptr<Pool> create(const PoolOpenOptions& options = {}) {
    auto pool = Pool::create(path_, kZeroAheadPoolBytes, options);
    EXPECT_TRUE(pool) << pool.error().to_string();
    return pool ? std::move(*pool) : nullptr;
  }
  // Its file has blocks only where something was written.
  std::unique_ptr<Pool> create_sparse() {
    PoolOpenOptions options;
    options.sparse = true;
    return create(options);
  }
  uint64_t blocks() const {
    struct stat status {};
    EXPECT_EQ(::stat(path_.c_str(), &status), 0);
    return static_cast<uint64_t>(status.st_blocks);
  }

  Scratch scratch_;
  std::string path_ = scratch_.path("pool");
};

TEST_F(ZeroAhead, SpaceIsZeroedAheadOfItsExtentInSteps) {
  auto pool = create();
  const Extent used = pool->allocate_extent(ExtentKind::kRecords, 4 << 20).value();
  std::memset(pool->memory().at(used.offset), 7, used.bytes);
  ASSERT_TRUE(pool->free_extent(used));
  int steps = 1;
  while (pool->zero_ahead(ExtentKind::kLog, 4 << 20, 512 << 10).value()) ++steps;
  EXPECT_EQ(steps, 8);
  EXPECT_TRUE(pool->info().extents.empty());
  Recorder recorder(pool->memory());
  const Extent made = pool->allocate_extent(ExtentKind::kLog, 4 << 20).value();
  EXPECT_LT(recorder.take().size(), 40u) << "it is zero by now";
  ASSERT_EQ(made.offset, used.offset);
  const auto* const bytes = pool->memory().at(made.offset);
  EXPECT_EQ(std::count(bytes, bytes + made.bytes, std::byte{0}),
            static_cast<ptrdiff_t>(made.bytes));
}

TEST_F(ZeroAhead, SpaceThatSomebodyHasUsedMeanwhileIsZeroedAgain) {
  auto pool = create();
  while (pool->zero_ahead(ExtentKind::kLog, 4 << 20, 512 << 10).value()) {
  }
  const auto none = [](const Extent&) { return Status(); };
  const Extent used = pool->allocate_unzeroed(ExtentKind::kRecords, 4 << 20, none).value();
  std::memset(pool->memory().at(used.offset), 7, used.bytes);
  ASSERT_TRUE(pool->free_extent(used));
  EXPECT_TRUE(pool->zero_ahead(ExtentKind::kLog, 4 << 20, 512 << 10).value());
  const Extent made = pool->allocate_extent(ExtentKind::kLog, 4 << 20).value();
  ASSERT_EQ(made.offset, used.offset);
  const auto* const bytes = pool->memory().at(made.offset);
  EXPECT_EQ(std::count(bytes, bytes + made.bytes, std::byte{0}),
            static_cast<ptrdiff_t>(made.bytes));
}

// Only what has data, whatever the file system says about blocks that were never written.
TEST_F(ZeroAhead, SpaceOfAPoolThatHasItsBlocksIsZeroedWhereItHasData) {
  auto pool = create();
  const Extent used = pool->allocate_extent(ExtentKind::kRecords, 4 << 20).value();
  std::memset(pool->memory().at(used.offset) + 100'000, 7, 10);
  std::memset(pool->memory().at(used.offset) + 3'000'000, 7, 10'000);
  ASSERT_TRUE(pool->free_extent(used));
  while (pool->zero_ahead(ExtentKind::kLog, 4 << 20, 512 << 10).value()) {
  }
  const Extent made = pool->allocate_extent(ExtentKind::kLog, 4 << 20).value();
  ASSERT_EQ(made.offset, used.offset);
  const auto* const bytes = pool->memory().at(made.offset);
  EXPECT_EQ(std::count(bytes, bytes + made.bytes, std::byte{0}),
            static_cast<ptrdiff_t>(made.bytes));
}

TEST_F(ZeroAhead, HolesArePassedInFewStepsAndStayHoles) {
  auto pool = create_sparse();
  const uint64_t before = blocks();
  int steps = 1;
  while (pool->zero_ahead(ExtentKind::kLog, 16 << 20, 512 << 10).value()) ++steps;
  EXPECT_LE(steps, 4) << "32 would be one for each 512 KiB";
  EXPECT_EQ(blocks(), before);
}

TEST_F(ZeroAhead, AnExtentInHolesIsMadeWithoutReadingOrFillingThem) {
  auto pool = create_sparse();
  const uint64_t before = blocks();
  const uint64_t read_before = read_from_files;
  ASSERT_TRUE(pool->allocate_extent(ExtentKind::kLog, 16 << 20));
  EXPECT_LT(read_from_files - read_before, 1u << 20);
  EXPECT_LE(blocks(), before + 64) << "blocks of 512 bytes; the headers have some";
}

// As after a log that was deleted, before its blocks have gone: a search for the end of this data
// would begin anew in each step.
TEST_F(ZeroAhead, DataOfFreedSpaceInASparsePoolIsGoneThroughOnce) {
  auto pool = create_sparse();
  const Extent used = pool->allocate_extent(ExtentKind::kRecords, 16 << 20).value();
  std::memset(pool->memory().at(used.offset), 7, used.bytes / 2);
  std::memset(pool->memory().at(used.offset + used.bytes - 4096), 7, 4096);
  ASSERT_TRUE(pool->free_extent(used));
  const uint64_t searched_before = searched_for_holes;
  const uint64_t read_before = read_from_files;
  int steps = 1;
  while (pool->zero_ahead(ExtentKind::kLog, 16 << 20, 512 << 10).value()) ++steps;
  EXPECT_GE(steps, 16) << "half of it has data";
  EXPECT_LE(steps, 18) << "32 would be one for each 512 KiB";
  const Extent made = pool->allocate_extent(ExtentKind::kLog, 16 << 20).value();
  ASSERT_EQ(made.offset, used.offset);
  EXPECT_LE(searched_for_holes - searched_before, used.bytes);
  EXPECT_LE(read_from_files - read_before, used.bytes);
  const auto* const bytes = pool->memory().at(made.offset);
  EXPECT_EQ(std::count(bytes, bytes + made.bytes, std::byte{0}),
            static_cast<ptrdiff_t>(made.bytes));
}

}  // namespace
}  // namespace pmstore::persist
