// A pool in a file is read past its mapping.
#include "persist/file_reads.h"

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/unit/persist/scratch.h"

namespace pmstore::persist {
namespace {

TEST(FileReads, ShowAFileAsItsMappingDoes) {
  Scratch scratch;
  constexpr uint64_t kFileBytes = 32 << 20;
  const std::string path = scratch.path("pool");
  uint64_t offset = 0;
  std::vector<std::byte> bytes(70'000, std::byte{7});
  {
    auto pool = Pool::create(path, kFileBytes, {}).value();
    offset = pool->allocate_extent(ExtentKind::kRecords, 1 << 20)->offset;
    pool->memory().store(pool->memory().at(offset), bytes.data(), bytes.size());
    const FileReads* const file = FileReads::of(*pool);
    ASSERT_NE(file, nullptr);
    std::vector<std::byte> found(bytes.size());
    EXPECT_TRUE(file->read(offset, found));  // before it is durable, too
    EXPECT_EQ(found, bytes);
    EXPECT_EQ(file->read(std::filesystem::file_size(path) - 8, found).code(), ErrorCode::kIo);
  }
  const auto view = Pool::view(path).value();
  std::vector<std::byte> found(bytes.size());
  EXPECT_TRUE(FileReads::of(*view)->read(offset, found));
  EXPECT_EQ(found, bytes);
  alignas(4096) static std::array<std::byte, 1 << 20> region;
  const auto memory = Pool::in_region(region, Domain::kNone, true).value();
  EXPECT_EQ(FileReads::of(*memory), nullptr);
}

}  // namespace
}  // namespace pmstore::persist
