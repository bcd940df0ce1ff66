// HashIndex: the hash index behind KeyIndex: a table of buckets in DRAM that clients READ one-sided
// (pmstore/layout/bucket_layout.h), which grows and shrinks with its entries.
//
// Growth is linear hashing: one bucket at a time splits, in the order of the numbers, and its new
// half is the bucket behind the last one. So no entry but those of one bucket ever moves, and no
// memory: the table is a reserved range whose pages are touched when they are needed. A bucket says
// its depth, by which a reader with an old idea of the size finds its way. Merges undo splits in
// the opposite order, and the memory of whole pieces goes back to the system.
//
// When a bucket is full, further entries go to an overflow list that only the server sees; the
// bucket's shape tells clients to ask by RPC. Keys are not kept here: find() offers the entries
// with the hash's tag, and the caller compares the key in the record.
//
// Invariants: a bucket's version is odd between begin_change() and end_change(), and only then do
// its entries change; a bucket in change is neither split nor merged, so a key stays in its bucket
// from begin_change() to end_change(); a bucket's version never returns to an earlier value, also
// after its bucket was merged and split off again; the shape counts its overflow list; a bucket
// with an overflow list is full; buckets from 0 to bucket_count() are in use except the late ones,
// whose parents were in change when their turn came. Threads: the server's; one-sided readers see
// each 8-byte word whole.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/result.h"
#include "pmstore/layout/bucket_layout.h"
#include "pmstore/shard/checkpoint_load.h"
#include "pmstore/shard/checkpoint_writer.h"
#include "pmstore/shard/overflow_lists.h"

namespace pmstore::internal {

class HashIndex {
 public:
  static constexpr uint64_t kLeastBuckets = uint64_t{1} << kLeastDepth;
  // Entries per bucket, on average: above the first the index grows, below the second it shrinks.
  static constexpr uint64_t kGrowAbove = 8;
  static constexpr uint64_t kShrinkBelow = 4;
  // Buckets that are split or merged at the end of one change, at most.
  static constexpr unsigned kStepsPerChange = 2;

  // For at most `records_bytes` of records. Io when there is no address space; Unsupported: an
  // entry cannot name all slots.
  static Result<HashIndex> create(uint64_t records_bytes);
  HashIndex(HashIndex&&) noexcept;
  ~HashIndex();

  uint64_t bucket_count() const { return count_; }
  // No bucket from here on was ever in use.
  uint64_t end_of_buckets() const { return end_; }
  uint64_t bucket_of(KeyHash hash) const {
    uint64_t bucket = hash.bucket(count_);
    if (late_.empty()) [[likely]]
      return bucket;
    while (!buckets_[bucket].shape.in_use()) bucket = parent_bucket(bucket);
    return bucket;
  }
  // Of a bucket below end_of_buckets(); 0: its memory has gone back to the system.
  uint64_t version(uint64_t bucket) const {
    return __atomic_load_n(&buckets_[bucket].version, __ATOMIC_ACQUIRE);
  }

  // Asks for the memory of the hash's bucket. Inline as LockTable::prefetch().
  [[gnu::always_inline]] void prefetch(KeyHash hash) const {
    const auto* const bucket = reinterpret_cast<const std::byte*>(&buckets_[bucket_of(hash)]);
    __builtin_prefetch(bucket);
    __builtin_prefetch(bucket + sizeof(Bucket) / 2);
  }

  // Calls match(entry) for each entry with the hash's tag until it returns true, and gives that
  // entry; an unused entry when it never does.
  template <typename Match>
  BucketEntry find(KeyHash hash, Match&& match) const {
    const uint64_t number = bucket_of(hash);
    const Bucket& bucket = buckets_[number];
    // Its second line as well, and not first when the entries of the first have been looked at.
    __builtin_prefetch(reinterpret_cast<const std::byte*>(&bucket) + sizeof(Bucket) / 2);
    const uint32_t tag = hash.tag();
    for (uint64_t bits : bucket.entries) {
      const BucketEntry entry{bits};
      if (entry.used() && entry.tag() == tag && match(entry)) return entry;
    }
    if (bucket.shape.overflow() == 0) return {};
    const OverflowLists::List* const list = overflow_.find(number);
    if (list == nullptr) return {};
    for (const BucketEntry entry : *list) {
      if (entry.tag() == tag && match(entry)) return entry;
    }
    return {};
  }

  // Changes of one bucket nest: two writes of one transaction, or two transactions, may change it
  // at the same time. CHECK: each end_change() has its begin_change(). The end of the last change
  // may split or merge a few buckets, any that is not in change.
  void begin_change(KeyHash hash);
  void end_change(KeyHash hash);
  void insert(KeyHash hash, uint8_t size_class, SlotOffset slot);
  // CHECK: the entry is there.
  void erase(KeyHash hash, SlotOffset slot);
  bool contains(KeyHash hash, SlotOffset slot) const {
    return find(hash, [&](BucketEntry entry) { return entry.slot() == slot; }).used();
  }

  // Makes room for so many entries in one go, and does not shrink until expect_no_more(), which
  // gives up what was too much. Requires that there is no entry yet (CHECK).
  void expect(uint64_t entries);
  void expect_no_more();
  // Calls `look` after each store of a split or a merge, for tests: a reader may see the table in
  // between.
  void watch_steps(std::function<void()> look) { look_ = std::move(look); }
  // A device pins pages of the table: from here on none goes back to the system. Pinned pages are
  // never joined, so those that come into use from here on are huge ones at once.
  void keep_memory();
  // The memory of a piece, for clients to READ: it stays mapped as long as this index. Empty: no
  // bucket of it was ever in use.
  std::span<std::byte> piece(uint64_t number) const;

  // All entries, by bucket, and depths; the versions of buckets are not kept. Conflict: a bucket is
  // in change.
  Status save(CheckpointWriter& writer) const;
  // Into an empty index, when the load runs. Damaged: it has no address space for the buckets.
  Status load(CheckpointLoad& load);

  uint64_t size() const { return size_; }
  uint64_t overflowed() const { return overflowed_; }
  uint64_t bytes_in_use() const { return count_ * sizeof(Bucket); }
  uint64_t splits() const { return splits_; }
  uint64_t merges() const { return merges_; }

 private:
  HashIndex(Bucket* buckets, uint64_t most) : buckets_(buckets), most_(most) {}
  // What one section of a checkpoint had.
  struct LoadedPart {
    uint64_t entries = 0;
    std::vector<std::pair<uint64_t, std::vector<BucketEntry>>> overflow;
    std::vector<uint64_t> late;
  };
  Status save_part(CheckpointWriter& writer, uint64_t first, uint64_t count) const;
  bool load_part(CheckpointReader::Section& section, uint64_t first, uint64_t count,
                 LoadedPart& part);
  static void set(uint64_t& word, uint64_t value) {
    __atomic_store_n(&word, value, __ATOMIC_RELEASE);
  }
  static void set(BucketShape& shape, BucketShape value) { set(shape.bits, value.bits); }
  // A store of a split or a merge.
  template <typename Word>
  void step(Word& word, Word value) {
    set(word, value);
    if (look_) look_();
  }
  bool in_change(uint64_t bucket) const { return buckets_[bucket].version % 2 == 1; }
  void use_from_begin(uint64_t count);
  bool is_too_large() const { return size_ < count_ * kShrinkBelow && count_ > kLeastBuckets; }
  void adapt();
  bool grow();
  bool make_up();
  bool shrink();
  bool can_split_off(uint64_t child) const;
  void split_off(uint64_t child);
  void merge_back(uint64_t child);
  void release_piece(uint64_t number);
  void join_pieces(uint64_t count);
  std::span<std::byte> memory_of(uint64_t number) const;
  std::vector<BucketEntry> take_overflow(uint64_t bucket);
  void fill(uint64_t bucket, unsigned depth, std::span<const BucketEntry> entries);

  Bucket* buckets_;
  uint64_t most_;  // for so many there is address space
  uint64_t count_ = 0;
  uint64_t end_ = 0;
  std::deque<uint64_t> late_;  // below count_, not in use yet
  OverflowLists overflow_;
  // By bucket: the begin_change() calls beyond the first that were not ended yet.
  std::unordered_map<uint64_t, unsigned> changing_;
  uint64_t size_ = 0;
  uint64_t overflowed_ = 0;
  uint64_t splits_ = 0;
  uint64_t merges_ = 0;
  bool keeps_memory_ = false;
  bool keeps_size_ = false;
  std::function<void()> look_;
};

}  // namespace pmstore::internal
