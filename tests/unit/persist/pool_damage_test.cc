// Damage in libpmemobj's own metadata, which libpmemobj trusts: it must neither end the program nor
// change the file that is refused, nor give an extent's memory to another one.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <libpmemobj.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>

#include "base/random.h"
#include "persist/internal/pmemobj_format.h"
#include "persist/pool.h"
#include "persist/pool_layout.h"
#include "tests/unit/persist/scratch.h"

namespace pmstore::persist {
namespace {

constexpr uint64_t kWholeBytes = kMinPoolBytes;
constexpr uint64_t kPage = 4096;

class PoolDamage : public testing::Test {
 protected:
  void SetUp() override {
    auto pool = Pool::create(path_, kWholeBytes, {});
    ASSERT_TRUE(pool) << pool.error().to_string();
    ASSERT_TRUE((*pool)->allocate_extent(ExtentKind::kRecords, 3 << 20));
    ASSERT_TRUE((*pool)->allocate_extent(ExtentKind::kRings, 1 << 20));
    extents_ = (*pool)->info().extents;
    pool->reset();
    intact_ = read_file(path_);
    damaged_ = intact_;
    const int fd = open(path_.c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    void* mapped = mmap(nullptr, kWholeBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ASSERT_NE(mapped, MAP_FAILED);
    close(fd);
    file_ = static_cast<char*>(mapped);
    const auto facts = internal::check_pmemobj(std::as_bytes(std::span(intact_)), "pool");
    ASSERT_TRUE(facts);
    facts_ = *facts;
  }

  void TearDown() override {
    if (file_ != nullptr) munmap(file_, kWholeBytes);
  }

  // With `bytes` at `offset`: opens, uses what opens, restores. Whether it opened.
  bool survives(uint64_t offset, const void* bytes, size_t count) {
    std::memcpy(file_ + offset, bytes, count);
    std::memcpy(damaged_.data() + offset, bytes, count);
    testing::internal::CaptureStderr();
    auto pool = Pool::open(path_, {});
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    const bool opened = pool.has_value();
    if (opened) {
      use(**pool);
      pool->reset();
    } else {
      EXPECT_TRUE(pool.code() == ErrorCode::kBadPool || pool.code() == ErrorCode::kVersionMismatch)
          << pool.error().to_string();
      EXPECT_NE(pool.error().message.find(path_ + ": "), std::string::npos);
      EXPECT_EQ(pool.error().message.find('\n'), std::string::npos);
      EXPECT_EQ(pool.error().message.find("/proc/"), std::string::npos);
      EXPECT_EQ(std::memcmp(file_, damaged_.data(), kWholeBytes), 0)
          << "the refused file was changed";
      ++reasons_[pool.error().message.substr(path_.size())];
    }
    for (uint64_t at = 0; opened && at < kWholeBytes; at += kPage) {
      if (std::memcmp(file_ + at, intact_.data() + at, kPage) == 0) continue;
      std::memcpy(file_ + at, intact_.data() + at, kPage);
    }
    std::memcpy(file_ + offset, intact_.data() + offset, count);
    std::memcpy(damaged_.data() + offset, intact_.data() + offset, count);
    return opened;
  }

  // Whatever was accepted has the same extents, and gives out none of their memory.
  void use(Pool& pool) {
    ASSERT_EQ(pool.info().extents.size(), extents_.size());
    for (size_t i = 0; i < extents_.size(); ++i) {
      ASSERT_EQ(pool.info().extents[i].offset, extents_[i].offset);
      ASSERT_EQ(pool.info().extents[i].bytes, extents_[i].bytes);
    }
    const auto more = pool.allocate_extent(ExtentKind::kLog, 1 << 20);
    if (!more) return;
    for (const Extent& old : extents_) {
      EXPECT_TRUE(more->offset + more->bytes <= old.offset ||
                  old.offset + old.bytes <= more->offset);
    }
  }

  bool in_extent(uint64_t offset) const {
    return std::any_of(extents_.begin(), extents_.end(), [&](const Extent& extent) {
      return offset >= extent.offset && offset < extent.offset + extent.bytes;
    });
  }

  // libpmemobj's 1,024 lanes, which are all alike, lie between descriptor and heap.
  bool in_lanes(uint64_t page) const { return page >= 4 * kPage && page < facts_.heap_offset; }

  void report() {
    for (const auto& [reason, times] : reasons_) std::printf("%5d %s\n", times, reason.c_str());
  }

  Scratch scratch_;
  std::string path_ = scratch_.path("pool");
  std::vector<Extent> extents_;
  std::vector<char> intact_;
  std::vector<char> damaged_;  // what the file is before it is opened
  internal::PmemobjFacts facts_{};
  char* file_ = nullptr;
  std::map<std::string, int> reasons_;
};

// Of bytes that say something, one in a page; and a byte of some pages that are all zero.
TEST_F(PoolDamage, AFlippedByteOfAnyMetadataPageIsRefusedOrHarmless) {
  Random random(17);
  int opened = 0;
  int refused = 0;
  for (uint64_t page = 0; page < kWholeBytes; page += kPage) {
    if (in_lanes(page) && random.below(32) != 0) continue;
    std::vector<uint64_t> candidates;
    for (uint64_t at = page; at < page + kPage; ++at) {
      if (intact_[at] != 0 && !in_extent(at)) candidates.push_back(at);
    }
    if (candidates.empty()) {
      const uint64_t at = page + random.below(kPage);
      if (random.below(32) == 0 && !in_extent(at)) candidates.push_back(at);
    }
    if (!candidates.empty()) {
      const size_t chosen = random.below(candidates.size());
      const uint64_t at = candidates[chosen];
      const char flip = static_cast<char>(random.below(2) == 0 ? 0xff : 1 << random.below(8));
      SCOPED_TRACE(at);
      const char flipped = static_cast<char>(intact_[at] ^ flip);
      ++(survives(at, &flipped, 1) ? opened : refused);
      ASSERT_FALSE(HasFailure());
    }
  }
  report();
  std::printf("%d opened, %d refused\n", opened, refused);
  EXPECT_GT(refused, 1);
  EXPECT_GT(opened, 20);
}

TEST_F(PoolDamage, GarbageInAnyMetadataPageIsRefusedOrHarmless) {
  Random random(18);
  int refused = 0;
  for (uint64_t page = 0; page < kWholeBytes; page += kPage) {
    const bool written = std::any_of(intact_.begin() + static_cast<ptrdiff_t>(page),
                                     intact_.begin() + static_cast<ptrdiff_t>(page + kPage),
                                     [](char byte) { return byte != 0; });
    if (in_lanes(page) && random.below(64) != 0) continue;
    if (in_extent(page) || in_extent(page + kPage - 1) || (!written && random.below(64) != 0)) {
      continue;
    }
    SCOPED_TRACE(page);
    std::array<char, kPage> garbage;
    for (char& byte : garbage) byte = static_cast<char>(random.below(256));
    refused += survives(page, garbage.data(), garbage.size()) ? 0 : 1;
    ASSERT_FALSE(HasFailure());
  }
  report();
  EXPECT_GT(refused, 2);
}

// Every field of the chunk headers, which say what is free.
TEST_F(PoolDamage, ChunkHeadersThatLieAreRefusedOrHarmless) {
  const uint64_t headers = facts_.heap_offset + 1024 + 64;
  int refused = 0;
  for (uint64_t chunk = 0; chunk < 52; chunk += chunk < 2 ? 1 : 10) {
    for (const uint16_t type : {0, 1, 2, 3, 4, 5, 99}) {
      SCOPED_TRACE(testing::Message() << "chunk " << chunk << " type " << type);
      refused += survives(headers + chunk * 8, &type, sizeof type) ? 0 : 1;
      ASSERT_FALSE(HasFailure());
    }
    for (const uint32_t length : {0u, 1u, 3u, 40u, 65528u, ~0u}) {
      SCOPED_TRACE(testing::Message() << "chunk " << chunk << " length " << length);
      refused += survives(headers + chunk * 8 + 4, &length, sizeof length) ? 0 : 1;
      ASSERT_FALSE(HasFailure());
    }
  }
  report();
  EXPECT_GT(refused, 4);
}

TEST_F(PoolDamage, ARootObjectElsewhereIsRefused) {
  constexpr uint64_t kRootOffset = 4096 + 2048;
  for (const uint64_t root :
       {uint64_t{0}, uint64_t{1}, facts_.root_offset + 256, facts_.root_offset - 512,
        extents_[0].offset, kWholeBytes, ~uint64_t{0}}) {
    SCOPED_TRACE(root);
    EXPECT_FALSE(survives(kRootOffset, &root, sizeof root));
  }
}

TEST_F(PoolDamage, NoTraceIsLeftOfARehearsal) {
  const auto open_files = [] {
    size_t count = 0;
    for ([[maybe_unused]] const auto& entry :
         std::filesystem::directory_iterator("/proc/self/fd")) {
      ++count;
    }
    return count;
  };
  const size_t before = open_files();
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(survives(0, intact_.data(), 1));
    EXPECT_FALSE(survives(facts_.heap_offset + 1024 + 64, "\x63", 1));
  }
  EXPECT_EQ(open_files(), before);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
}

}  // namespace
}  // namespace pmstore::persist
