// The heap of a pool is libpmemobj's, and while the pool is in use libpmemobj has not opened it:
// what is done to the heap meanwhile, and what a crash leaves of it, is what libpmemobj would find.
#include "persist/internal/pmemobj_heap.h"

#include <gtest/gtest.h>
#include <libpmemobj.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "base/random.h"
#include "persist/internal/pmemobj_library.h"
#include "persist/pool.h"
#include "tests/unit/persist/scratch.h"

namespace pmstore::persist::internal {
namespace {

constexpr uint64_t kMiB = 1 << 20;

PoolOpenOptions sparse() {
  PoolOpenOptions options;
  options.sparse = true;
  return options;
}

// Everything that libpmemobj still gives out, in objects of `bytes`, when it has opened the pool.
std::vector<uint64_t> objects_of_libpmemobj(const std::string& file, uint64_t bytes) {
  std::vector<uint64_t> offsets;
  PMEMobjpool* const pool = pmemobj_open(file.c_str(), kPoolLayoutName);
  EXPECT_NE(pool, nullptr) << pmemobj_errormsg();
  if (pool == nullptr) return offsets;
  pobj_action action;
  for (PMEMoid object = pmemobj_reserve(pool, &action, bytes, 1); !OID_IS_NULL(object);
       object = pmemobj_reserve(pool, &action, bytes, 1)) {
    offsets.push_back(object.off);
    EXPECT_EQ(pmemobj_publish(pool, &action, 1), 0);
  }
  pmemobj_close(pool);
  return offsets;
}

bool overlaps_one(const std::vector<Extent>& extents, uint64_t offset, uint64_t bytes) {
  return std::any_of(extents.begin(), extents.end(), [&](const Extent& extent) {
    return offset < extent.offset + extent.bytes && extent.offset < offset + bytes;
  });
}

TEST(PmemobjHeap, LibpmemobjGivesOutWhatNoExtentHasAndAllOfIt) {
  constexpr uint64_t kPoolBytes = 64 * kMiB;
  const Scratch scratch;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const std::string path = scratch.path("pool" + std::to_string(seed));
    std::vector<Extent> extents;
    uint64_t free_bytes = 0;
    {
      auto pool = Pool::create(path, kPoolBytes, sparse()).value();
      for (int step = 0; step < 60; ++step) {
        extents = pool->info().extents;
        if (!extents.empty() && random.below(5) < 2) {
          ASSERT_TRUE(pool->free_extent(extents[random.below(extents.size())]));
        } else {
          const auto made =
              pool->allocate_extent(ExtentKind::kRecords, (1 + random.below(12)) * kMiB);
          ASSERT_TRUE(made || made.code() == ErrorCode::kFull);
        }
      }
      extents = pool->info().extents;
      free_bytes = pool->info().bytes;
      for (const Extent& extent : extents) {
        free_bytes -=
            round_up(std::max(extent.bytes + kAlignmentSlack, kSmallestObject) + kObjectHeaderBytes,
                     kChunkBytes);
      }
    }
    // The objects are as small as they can be: less than one of them is lost before each extent.
    const auto objects = objects_of_libpmemobj(path, kSmallestObject);
    for (const uint64_t offset : objects) {
      EXPECT_FALSE(overlaps_one(extents, offset, kSmallestObject));
    }
    EXPECT_LT(free_bytes - objects.size() * 11 * kChunkBytes,
              (extents.size() + 1) * 11 * kChunkBytes + 16 * kChunkBytes + 4 * kMiB);
    // What libpmemobj has made without an extent is freed by the next opening.
    auto pool = Pool::open(path, {}).value();
    EXPECT_EQ(pool->info().extents.size(), extents.size());
    EXPECT_GE(pool->info().free_bytes, kLeastExtent);
  }
}

// Of a pool beyond one zone: libpmemobj sets a zone up when it first needs it, and so do we.
TEST(PmemobjHeap, AZoneIsSetUpWhenItIsFirstNeeded) {
  constexpr uint64_t kZone = uint64_t{65528} * kChunkBytes;
  constexpr uint64_t kBytes = 2 * kZone + 64 * kMiB;
  const base::FileDescriptor fd(memfd_create("zones", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(fd.get(), static_cast<off_t>(kBytes)), 0);
  const std::string file = "/proc/self/fd/" + std::to_string(fd.get());
  ASSERT_TRUE(create_pmemobj(file, "zones", kPmemobjRootBytes, false));
  void* const mapped = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  const std::span bytes(static_cast<std::byte*>(mapped), kBytes);
  const auto facts = check_pmemobj(bytes, "zones").value();
  Memory memory(bytes, {.domain = Domain::kMemoryController});
  PmemobjHeap heap(memory, facts);
  std::vector<Extent> extents;
  const auto take = [&](uint64_t extent_bytes) {
    const auto room = heap.find(extent_bytes);
    ASSERT_TRUE(room.has_value());
    ASSERT_TRUE(heap.prepare(*room, 1));
    ASSERT_TRUE(heap.publish(memory.drain().value(), *room));
    extents.push_back({ExtentKind::kRecords, room->object() + kAlignmentSlack, extent_bytes});
  };
  // The last zone is the smallest, so the best fit begins there.
  take(4 * kMiB);
  EXPECT_GT(extents.back().offset, 2 * kZone);
  take(heap.largest_extent());
  take(heap.largest_extent());
  EXPECT_LT(extents.back().offset, 2 * kZone);
  EXPECT_TRUE(check_allocated(bytes, facts, extents, "zones"));
  const auto objects = objects_of_libpmemobj(file, kSmallestObject);
  EXPECT_FALSE(objects.empty());
  for (const uint64_t offset : objects) {
    EXPECT_FALSE(overlaps_one(extents, offset, kSmallestObject));
  }
  EXPECT_TRUE(check_allocated(bytes, facts, extents, "zones"));
  ASSERT_TRUE(heap.mend({}));
  EXPECT_EQ(heap.largest_extent(), largest_extent_in(largest_free_object(bytes, facts)));
  EXPECT_GT(heap.largest_extent(), kZone - 64 * kMiB);
  munmap(mapped, kBytes);
}

// What may be on the medium after a crash: each word that was stored since it was last drained may
// be there or not.
class CrashedHeaps final : public Observer {
 public:
  // The file of the pool is read, as a mapping would fill its holes, which are zeroed then.
  CrashedHeaps(Memory& memory, const std::string& path, std::string copy)
      : memory_(memory), copy_(std::move(copy)), image_(read_file(path)) {
    memory.set_observer(this);
  }
  ~CrashedHeaps() override { memory_.set_observer(nullptr); }

  void on_store(const void* to, const void* from, size_t bytes, bool) override {
    const uint64_t offset = memory_.offset_of(to);
    ASSERT_EQ(offset % 8, 0u);
    for (size_t at = 0; at < bytes; at += 8) {
      Word word{offset + at, 0, false};
      std::memcpy(&word.value, static_cast<const char*>(from) + at, 8);
      words_.push_back(word);
    }
  }
  void on_flush(const void* from, size_t bytes) override {
    const uint64_t begin = round_down(memory_.offset_of(from), 64);
    const uint64_t end = round_up(memory_.offset_of(from) + bytes, 64);
    for (Word& word : words_) word.flushed |= word.offset >= begin && word.offset < end;
  }
  void on_drain() override {
    ASSERT_LT(words_.size(), 12u);
    for (uint32_t kept = 0; kept < uint32_t{1} << words_.size(); ++kept) {
      std::vector<char> state = image_;
      for (size_t i = 0; i < words_.size(); ++i) {
        if ((kept >> i & 1) != 0) put(state, words_[i]);
      }
      try_out(state);
    }
    for (const Word& word : words_) {
      if (word.flushed) put(image_, word);
    }
    std::erase_if(words_, [](const Word& word) { return word.flushed; });
  }

  // "number of extents, largest free extent" of what was opened.
  const std::set<std::pair<size_t, uint64_t>>& outcomes() const { return outcomes_; }
  size_t states() const { return states_; }

 private:
  struct Word {
    uint64_t offset;
    uint64_t value;
    bool flushed;
  };
  static void put(std::vector<char>& image, const Word& word) {
    std::memcpy(image.data() + word.offset, &word.value, sizeof word.value);
  }
  void try_out(const std::vector<char>& state) {
    ++states_;
    write_file(copy_,
               std::vector<char>(reinterpret_cast<const char*>(state.data()),
                                 reinterpret_cast<const char*>(state.data() + state.size())));
    PMEMobjpool* const by_libpmemobj = pmemobj_open(copy_.c_str(), kPoolLayoutName);
    ASSERT_NE(by_libpmemobj, nullptr) << pmemobj_errormsg();
    pmemobj_close(by_libpmemobj);
    const auto pool = Pool::open(copy_, {});
    ASSERT_TRUE(pool) << pool.error().to_string();
    outcomes_.emplace((*pool)->info().extents.size(), (*pool)->info().free_bytes);
  }

  Memory& memory_;
  std::string copy_;
  std::vector<char> image_;
  std::vector<Word> words_;
  std::set<std::pair<size_t, uint64_t>> outcomes_;
  size_t states_ = 0;
};

TEST(PmemobjHeap, ACrashLeavesTheExtentAndItsRoomOrNeither) {
  const Scratch scratch;
  const auto pool = Pool::create(scratch.path("pool"), kMinPoolBytes, sparse()).value();
  const auto first = pool->allocate_extent(ExtentKind::kRecords, 3 * kMiB).value();
  const uint64_t without = pool->largest_free_extent();
  uint64_t with = 0;
  {
    CrashedHeaps crashes(pool->memory(), scratch.path("pool"), scratch.path("copy"));
    const auto second = pool->allocate_extent(ExtentKind::kRings, 3 * kMiB).value();
    with = pool->largest_free_extent();
    EXPECT_GT(crashes.states(), 60u);
    const std::set<std::pair<size_t, uint64_t>> either = {{1, without}, {2, with}};
    EXPECT_EQ(crashes.outcomes(), either);
    ASSERT_TRUE(pool->free_extent(second));
    EXPECT_EQ(crashes.outcomes(), either);
  }
  EXPECT_EQ(pool->largest_free_extent(), without);
  ASSERT_TRUE(pool->free_extent(first));
  EXPECT_GT(pool->largest_free_extent(), without);
}

}  // namespace
}  // namespace pmstore::persist::internal
