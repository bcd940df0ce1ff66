// Pools in files: free space that is zeroed ahead of the extent that will lie there.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "persist/pool.h"
#include "tests/unit/persist/recorder.h"
#include "tests/unit/persist/scratch.h"

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
  PoolOpenOptions sparse;
  sparse.sparse = true;
  auto pool = create(sparse);
  struct stat before {};
  ASSERT_EQ(::stat(path_.c_str(), &before), 0);
  int steps = 1;
  while (pool->zero_ahead(ExtentKind::kLog, 16 << 20, 512 << 10).value()) ++steps;
  EXPECT_LE(steps, 4) << "32 would be one for each 512 KiB";
  struct stat after {};
  ASSERT_EQ(::stat(path_.c_str(), &after), 0);
  EXPECT_EQ(before.st_blocks, after.st_blocks);
}

}  // namespace
}  // namespace pmstore::persist
