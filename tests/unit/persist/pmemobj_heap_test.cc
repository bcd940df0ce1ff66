// The heap of a pool is libpmemobj's, and while the pool is in use libpmemobj has not opened it:
// what is done to the heap meanwhile, and what a crash leaves of it, is what libpmemobj would find.
#include "persist/internal/pmemobj_heap.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <libpmemobj.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
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

std::string name_of(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

// A file without a catalog, mapped, and its heap.
class HeapFile {
 public:
  // A new one.
  explicit HeapFile(uint64_t bytes) : fd_(memfd_create("heap", MFD_CLOEXEC)), bytes_(bytes) {
    EXPECT_EQ(ftruncate(fd_.get(), static_cast<off_t>(bytes)), 0);
    EXPECT_TRUE(create_pmemobj(name(), "heap", kPmemobjRootBytes, false));
    map(fd_.get());
  }
  // One that is there; `fd` is borrowed.
  HeapFile(int fd, uint64_t bytes) : bytes_(bytes) { map(fd); }
  ~HeapFile() { munmap(mapped_, bytes_); }
  HeapFile(const HeapFile&) = delete;
  HeapFile& operator=(const HeapFile&) = delete;

  Extent take(uint64_t extent_bytes) {
    const auto room = heap().find(extent_bytes);
    EXPECT_TRUE(room.has_value());
    EXPECT_TRUE(heap().prepare(*room, 1));
    EXPECT_TRUE(heap().publish(memory().drain().value(), *room));
    return {ExtentKind::kRecords, room->object() + kAlignmentSlack, extent_bytes};
  }
  bool is_whole(const std::vector<Extent>& extents) {
    return check_allocated(memory().mapping(), facts_, extents, "heap").has_value();
  }
  int fd() const { return fd_.get(); }
  std::string name() const { return name_of(fd()); }
  const PmemobjFacts& facts() const { return facts_; }
  Memory& memory() { return *memory_; }
  PmemobjHeap& heap() { return *heap_; }

 private:
  void map(int file) {
    mapped_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ASSERT_NE(mapped_, MAP_FAILED);
    const std::span bytes(static_cast<std::byte*>(mapped_), bytes_);
    facts_ = check_pmemobj(bytes, "heap").value();
    memory_.emplace(bytes, MemoryOptions{.domain = Domain::kMemoryController});
    heap_.emplace(*memory_, facts_);
  }
  base::FileDescriptor fd_;
  uint64_t bytes_;
  void* mapped_ = nullptr;
  PmemobjFacts facts_{};
  std::optional<Memory> memory_;
  std::optional<PmemobjHeap> heap_;
};

constexpr uint64_t kZone = uint64_t{65528} * kChunkBytes;
constexpr uint64_t kThreeZones = 2 * kZone + 64 * kMiB;

// Of a pool beyond one zone: libpmemobj sets a zone up when it first needs it, and so do we.
TEST(PmemobjHeap, AZoneIsSetUpWhenItIsFirstNeeded) {
  HeapFile file(kThreeZones);
  PmemobjHeap& heap = file.heap();
  // The last zone is the smallest, so the best fit begins there.
  std::vector<Extent> extents = {file.take(4 * kMiB)};
  EXPECT_GT(extents.back().offset, 2 * kZone);
  extents.push_back(file.take(heap.largest_extent()));
  extents.push_back(file.take(heap.largest_extent()));
  EXPECT_LT(extents.back().offset, 2 * kZone);
  EXPECT_TRUE(file.is_whole(extents));
  const auto objects = objects_of_libpmemobj(file.name(), kSmallestObject);
  EXPECT_FALSE(objects.empty());
  for (const uint64_t offset : objects) {
    EXPECT_FALSE(overlaps_one(extents, offset, kSmallestObject));
  }
  EXPECT_TRUE(file.is_whole(extents));
  ASSERT_TRUE(heap.mend({}));
  EXPECT_EQ(heap.largest_extent(),
            largest_extent_in(largest_free_object(file.memory().mapping(), file.facts())));
  EXPECT_GT(heap.largest_extent(), kZone - 64 * kMiB);
}

// What may be on the medium after a crash: each word that was stored since it was last drained may
// be there or not. Each such file is opened by libpmemobj, which uses its heap, and then looked at.
class CrashedHeaps final : public Observer {
 public:
  using Look = std::function<void(int fd)>;
  // The file of the pool is read, as a mapping would fill its holes, which are zeroed then.
  CrashedHeaps(Memory& memory, int fd, Look look)
      : memory_(memory), look_(std::move(look)), image_(memfd_create("image", MFD_CLOEXEC)) {
    copy_data(fd, image_.get());
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
    for (uint32_t kept = 0; kept < uint32_t{1} << words_.size(); ++kept) try_out(kept);
    for (const Word& word : words_) {
      if (word.flushed) put(image_.get(), word);
    }
    std::erase_if(words_, [](const Word& word) { return word.flushed; });
  }
  size_t states() const { return states_; }

 private:
  struct Word {
    uint64_t offset;
    uint64_t value;
    bool flushed;
  };
  static void put(int fd, const Word& word) {
    EXPECT_EQ(pwrite(fd, &word.value, sizeof word.value, static_cast<off_t>(word.offset)), 8);
  }
  void copy_data(int from, int to) const {
    const auto bytes = static_cast<off_t>(memory_.bytes());
    ASSERT_EQ(ftruncate(to, bytes), 0);
    off_t end = 0;
    for (off_t at = lseek(from, 0, SEEK_DATA); at >= 0; at = lseek(from, end, SEEK_DATA)) {
      end = lseek(from, at, SEEK_HOLE);
      std::vector<char> data(static_cast<size_t>(end - at));
      ASSERT_EQ(pread(from, data.data(), data.size(), at), end - at);
      ASSERT_EQ(pwrite(to, data.data(), data.size(), at), end - at);
    }
  }
  void try_out(uint32_t kept) {
    ++states_;
    const base::FileDescriptor state(memfd_create("state", MFD_CLOEXEC));
    copy_data(image_.get(), state.get());
    for (size_t i = 0; i < words_.size(); ++i) {
      if ((kept >> i & 1) != 0) put(state.get(), words_[i]);
    }
    PMEMobjpool* const by_libpmemobj = pmemobj_open(name_of(state.get()).c_str(), kPoolLayoutName);
    ASSERT_NE(by_libpmemobj, nullptr) << pmemobj_errormsg();
    pobj_action action;
    const PMEMoid object = pmemobj_reserve(by_libpmemobj, &action, kSmallestObject, 1);
    EXPECT_FALSE(OID_IS_NULL(object)) << pmemobj_errormsg();
    if (!OID_IS_NULL(object)) pmemobj_cancel(by_libpmemobj, &action, 1);
    pmemobj_close(by_libpmemobj);
    look_(state.get());
  }

  Memory& memory_;
  Look look_;
  base::FileDescriptor image_;
  std::vector<Word> words_;
  size_t states_ = 0;
};

TEST(PmemobjHeap, ACrashLeavesTheExtentAndItsRoomOrNeither) {
  const Scratch scratch;
  const std::string path = scratch.path("pool");
  const auto pool = Pool::create(path, 2 * kMinPoolBytes, sparse()).value();
  const auto first = pool->allocate_extent(ExtentKind::kRecords, 3 * kMiB).value();
  const uint64_t without = pool->largest_free_extent();
  uint64_t with = 0;
  {
    // "number of extents, largest free extent" of what was opened.
    std::set<std::pair<size_t, uint64_t>> outcomes;
    const base::FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    CrashedHeaps crashes(pool->memory(), fd.get(), [&](int state) {
      const auto opened = Pool::open(name_of(state), {});
      ASSERT_TRUE(opened) << opened.error().to_string();
      outcomes.emplace((*opened)->info().extents.size(), (*opened)->info().free_bytes);
    });
    const auto second = pool->allocate_extent(ExtentKind::kRings, 3 * kMiB).value();
    with = pool->largest_free_extent();
    EXPECT_GT(crashes.states(), 60u);
    const std::set<std::pair<size_t, uint64_t>> either = {{1, without}, {2, with}};
    EXPECT_EQ(outcomes, either);
    ASSERT_TRUE(pool->free_extent(second));
    EXPECT_EQ(outcomes, either);
  }
  EXPECT_EQ(pool->largest_free_extent(), without);
  ASSERT_TRUE(pool->free_extent(first));
  EXPECT_GT(pool->largest_free_extent(), without);
}

TEST(PmemobjHeap, ACrashLeavesAZoneThatIsSetUpOrNot) {
  HeapFile file(kThreeZones);
  std::set<uint64_t> outcomes;
  const auto look = [&](int state) {
    HeapFile crashed(state, kThreeZones);
    ASSERT_TRUE(crashed.is_whole({}));
    ASSERT_TRUE(crashed.heap().mend({}));
    outcomes.insert(crashed.heap().find(4 * kMiB)->group.begin);
  };
  CrashedHeaps crashes(file.memory(), file.fd(), look);
  const Extent extent = file.take(4 * kMiB);
  EXPECT_GT(crashes.states(), 12u);
  EXPECT_EQ(outcomes, std::set<uint64_t>{extent.offset - kAlignmentSlack - kObjectHeaderBytes});
}

TEST(PmemobjHeap, ACrashWhileItIsMendedLeavesWhatCanBeMended) {
  HeapFile file(64 * kMiB);
  file.take(3 * kMiB);
  const std::vector<Extent> kept = {file.take(3 * kMiB)};
  file.take(3 * kMiB);
  file.take(3 * kMiB);
  const uint64_t before = file.heap().largest_extent();
  std::set<uint64_t> outcomes;
  const auto look = [&](int state) {
    HeapFile crashed(state, 64 * kMiB);
    ASSERT_TRUE(crashed.is_whole(kept));
    ASSERT_TRUE(crashed.heap().mend(kept));
    EXPECT_TRUE(crashed.is_whole(kept));
    outcomes.insert(crashed.heap().largest_extent());
  };
  {
    CrashedHeaps crashes(file.memory(), file.fd(), look);
    ASSERT_TRUE(file.heap().mend(kept));
    EXPECT_GT(crashes.states(), 8u);
  }
  EXPECT_GT(file.heap().largest_extent(), before + 6 * kMiB);
  EXPECT_EQ(outcomes, std::set<uint64_t>{file.heap().largest_extent()});
}

class Flushes final : public Observer {
 public:
  explicit Flushes(Memory& memory) : memory_(memory) { memory.set_observer(this); }
  ~Flushes() override { memory_.set_observer(nullptr); }
  void on_store(const void*, const void*, size_t, bool) override {}
  void on_flush(const void* from, size_t) override { places_.insert(memory_.offset_of(from)); }
  void on_drain() override {}
  bool has(uint64_t place) const { return places_.count(place) != 0; }

 private:
  Memory& memory_;
  std::set<uint64_t> places_;
};

// A process that was killed may have left them in the caches.
TEST(PmemobjHeap, MendingMakesTheHeadersOfZonesAndGroupsDurable) {
  HeapFile file(64 * kMiB);
  const std::vector<Extent> extents = {file.take(3 * kMiB)};
  const Flushes flushes(file.memory());
  ASSERT_TRUE(file.heap().mend(extents));
  for (const ChunkGroup& group : chunk_groups(file.memory().mapping(), file.facts())) {
    EXPECT_TRUE(flushes.has(group.header));
    EXPECT_TRUE(flushes.has(group.zone));
  }
}

}  // namespace
}  // namespace pmstore::persist::internal
