// Pools on every medium, from one source. By default the medium is a file; in a guest of
// tests/guest
//   PMSTORE_DAX=/dev/dax0.0      the device (its content is lost)
//   PMSTORE_POOL_DIR=/mnt/pmem   files in that folder, for instance of an fsdax file system
// PMSTORE_EXPECT_DOMAIN (none, adr, eadr) and PMSTORE_EXPECT_MEDIUM (file, devdax, fsdax) say what
// must be found; without them, what an ordinary file is.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "base/checksum.h"
#include "persist/pool.h"
#include "persist/pool_layout.h"

namespace pmstore::persist {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kBytes = 48u << 20;

std::string environment(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? otherwise : value;
}

class Media : public testing::Test {
 protected:
  Media() {
    path_ = environment("PMSTORE_DAX", "");
    on_device_ = !path_.empty();
    if (on_device_) return;
    const bool shm = access("/dev/shm", W_OK) == 0;
    folder_ = environment("PMSTORE_POOL_DIR",
                          shm ? "/dev/shm" : std::filesystem::temp_directory_path().string()) +
              "/pmstore-media-XXXXXX";
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    path_ = folder_ + "/pool";
  }
  ~Media() override {
    std::error_code ignored;
    if (!on_device_) std::filesystem::remove_all(folder_, ignored);
  }

  // A new pool in place of whatever is there.
  std::unique_ptr<Pool> create() {
    if (!on_device_) unlink(path_.c_str());
    auto pool = Pool::create(path_, kBytes, {}, true);
    EXPECT_TRUE(pool) << pool.error().to_string();
    return pool ? std::move(*pool) : nullptr;
  }
  std::unique_ptr<Pool> open() {
    auto pool = Pool::open(path_, {});
    EXPECT_TRUE(pool) << pool.error().to_string();
    return pool ? std::move(*pool) : nullptr;
  }

  // The first bytes of the medium, where all headers are; `change` gets them writable.
  template <typename Use>
  void with_bytes(Use use) {
    const int fd = ::open(path_.c_str(), O_RDWR);
    ASSERT_GE(fd, 0);
    void* mapped = mmap(nullptr, kMapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ASSERT_NE(mapped, MAP_FAILED);
    use(std::span<std::byte>(static_cast<std::byte*>(mapped), kMapped));
    munmap(mapped, kMapped);
    close(fd);
  }
  uint64_t fingerprint() {
    uint64_t sum = 0;
    with_bytes([&](std::span<std::byte> bytes) { sum = base::checksum64(bytes, 0); });
    return sum;
  }
  void flip(uint64_t offset) {
    with_bytes([&](std::span<std::byte> bytes) { bytes[offset] ^= std::byte{0x55}; });
  }

  static constexpr size_t kMapped = 16u << 20;
  bool on_device_ = false;
  std::string folder_;
  std::string path_;
};

TEST_F(Media, IsRecognised) {
  auto pool = create();
  ASSERT_NE(pool, nullptr);
  EXPECT_EQ(pool->info().medium, environment("PMSTORE_EXPECT_MEDIUM", "file"));
  EXPECT_EQ(domain_name(pool->info().detected_domain),
            environment("PMSTORE_EXPECT_DOMAIN", "none"));
  EXPECT_EQ(pool->memory().domain(), pool->info().detected_domain);
  EXPECT_THAT(pool->info().domain_source, HasSubstr("libpmem2 granularity"));
  if (pool->info().medium != "file") {
    EXPECT_THAT(pool->info().domain_source, HasSubstr("persistence_domain"));
  }
}

TEST_F(Media, KeepsWhatWasMadeDurable) {
  Extent extent{};
  {
    auto pool = create();
    ASSERT_NE(pool, nullptr);
    extent = pool->allocate_extent(ExtentKind::kRecords, 4 << 20).value();
    Memory& memory = pool->memory();
    const std::vector<std::byte> data(5000, std::byte{0xc3});
    memory.write(memory.at(extent.offset + 100), data.data(), data.size());
    memory.write(pool->root().data(), "catalog", 8);
    ASSERT_TRUE(memory.drain());
    if (memory.domain() == Domain::kMemoryController) {
      EXPECT_GT(memory.stats().flushed_lines, 0u);
    }
  }
  auto pool = open();
  ASSERT_NE(pool, nullptr);
  ASSERT_EQ(pool->info().extents.size(), 1u);
  EXPECT_EQ(pool->info().extents[0].offset, extent.offset);
  EXPECT_STREQ(reinterpret_cast<const char*>(pool->root().data()), "catalog");
  const auto bytes = pool->memory().mapping().subspan(extent.offset, extent.bytes);
  EXPECT_EQ(std::count(bytes.begin(), bytes.end(), std::byte{0xc3}), 5000);
}

TEST_F(Media, OldContentIsNeverSeenInANewExtent) {
  {
    auto pool = create();
    ASSERT_NE(pool, nullptr);
    const auto extent = pool->allocate_extent(ExtentKind::kRecords, 16 << 20).value();
    std::memset(pool->memory().at(extent.offset), 0x77, extent.bytes);
  }
  auto pool = create();
  ASSERT_NE(pool, nullptr);
  EXPECT_TRUE(pool->info().extents.empty());
  const auto extent = pool->allocate_extent(ExtentKind::kRecords, 16 << 20).value();
  const auto bytes = pool->memory().mapping().subspan(extent.offset, extent.bytes);
  EXPECT_TRUE(
      std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; }));
}

TEST_F(Media, APoolIsNotOverwrittenUnasked) {
  create().reset();
  const uint64_t before = fingerprint();
  const auto again = Pool::create(path_, kBytes, {}, false);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.code(), ErrorCode::kAlreadyExists) << again.error().to_string();
  EXPECT_EQ(fingerprint(), before);
}

TEST_F(Media, IsBusyWhileAnybodyHasIt) {
  auto pool = create();
  ASSERT_NE(pool, nullptr);
  EXPECT_EQ(Pool::open(path_, {}).code(), ErrorCode::kBusy);
  EXPECT_EQ(Pool::inspect(path_).code(), ErrorCode::kBusy);
  if (on_device_) {
    EXPECT_EQ(Pool::create(path_, 0, {}, true).code(), ErrorCode::kBusy);
  }
  pool.reset();
  open();
}

TEST_F(Media, LookingChangesNothing) {
  create().reset();
  const uint64_t before = fingerprint();
  const auto info = Pool::inspect(path_);
  ASSERT_TRUE(info) << info.error().to_string();
  EXPECT_EQ(fingerprint(), before);
  {
    const auto view = Pool::view(path_);
    ASSERT_TRUE(view) << view.error().to_string();
    EXPECT_EQ((*view)->info().free_bytes, info->free_bytes);
    EXPECT_EQ(Pool::open(path_, {}).code(), ErrorCode::kBusy);
    EXPECT_DEATH((*view)->memory().zero((*view)->root().data(), 8), "");
  }
  EXPECT_EQ(fingerprint(), before);
  PoolOpenOptions refusing;
  refusing.accept = [](Pool&) { return Status(make_error(ErrorCode::kBadPool, "no good")); };
  EXPECT_EQ(Pool::open(path_, refusing).code(), ErrorCode::kBadPool);
  EXPECT_EQ(fingerprint(), before);
  auto pool = open();
  EXPECT_EQ(info->free_bytes, pool->info().free_bytes);
  EXPECT_EQ(info->medium, pool->info().medium);
}

TEST_F(Media, DamagedHeadersAreRefusedAndLeftAlone) {
  uint64_t catalog = 0;
  {
    auto pool = create();
    ASSERT_NE(pool, nullptr);
    catalog = pool->memory().offset_of(pool->root().data()) - sizeof(PoolHeader) - kPoolTableBytes;
  }
  ASSERT_LT(catalog, kMapped);
  const std::pair<uint64_t, const char*> places[] = {{0, "not a pool"},
                                                     {40, "damaged header"},
                                                     {4096, "damaged header"},
                                                     {4096 + 100, "damaged header"},
                                                     {catalog, "damaged catalog header"},
                                                     {catalog + 30, "damaged catalog header"}};
  for (const auto& [offset, what] : places) {
    SCOPED_TRACE(offset);
    flip(offset);
    const uint64_t before = fingerprint();
    const auto opened = Pool::open(path_, {});
    const auto inspected = Pool::inspect(path_);
    ASSERT_FALSE(opened);
    ASSERT_FALSE(inspected);
    EXPECT_EQ(opened.code(), ErrorCode::kBadPool);
    EXPECT_THAT(opened.error().message, HasSubstr(what));
    EXPECT_EQ(inspected.error().message, opened.error().message);
    EXPECT_EQ(fingerprint(), before) << "the refused medium was changed";
    flip(offset);
  }
  open();
}

TEST_F(Media, OpensAfterAProcessThatDidNotCloseIt) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto pool = create();
    _exit(pool && pool->allocate_extent(ExtentKind::kRecords, 1 << 20) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  auto pool = open();
  ASSERT_NE(pool, nullptr);
  EXPECT_EQ(pool->info().extents.size(), 1u);
}

}  // namespace
}  // namespace pmstore::persist
