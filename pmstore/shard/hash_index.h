// HashIndex: the hash index behind KeyIndex: a table of buckets in DRAM that clients READ one-sided
// (pmstore/layout/bucket_layout.h).
//
// When a bucket is full, further entries go to an overflow list that only the server sees; the
// bucket's `overflow` word tells clients to ask by RPC. Keys are not kept here: find() offers the
// entries with the hash's tag, and the caller compares the key in the record.
// Invariants: a bucket's version is odd between begin_change() and end_change(), and only then do
// its entries change; `overflow` is the length of its overflow list; a bucket with an overflow list
// is full. Threads: the server's; one-sided readers see each 8-byte word whole.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "pmstore/layout/bucket_layout.h"

namespace pmstore::internal {

class HashIndex {
 public:
  // Sized for `records_bytes` of records of about 128 B at 8 of 14 entries per bucket. Io when
  // there is no memory.
  static Result<HashIndex> create(uint64_t records_bytes);
  HashIndex(HashIndex&&) noexcept;
  ~HashIndex();

  uint64_t bucket_count() const { return buckets_.size(); }
  uint64_t bucket_of(KeyHash hash) const { return hash.bucket(buckets_.size()); }
  uint64_t version(uint64_t bucket) const {
    return __atomic_load_n(&buckets_[bucket].version, __ATOMIC_ACQUIRE);
  }

  // Calls match(entry) for each entry with the hash's tag until it returns true, and gives that
  // entry; an unused entry when it never does.
  template <typename Match>
  BucketEntry find(KeyHash hash, Match&& match) const {
    const Bucket& bucket = buckets_[bucket_of(hash)];
    const uint16_t tag = hash.tag();
    for (uint64_t bits : bucket.entries) {
      const BucketEntry entry{bits};
      if (entry.used() && entry.tag() == tag && match(entry)) return entry;
    }
    if (bucket.overflow == 0) return {};
    const auto list = overflow_.find(bucket_of(hash));
    if (list == overflow_.end()) return {};
    for (const BucketEntry entry : list->second) {
      if (entry.tag() == tag && match(entry)) return entry;
    }
    return {};
  }

  // Changes of one bucket nest: two writes of one transaction, or two transactions, may change it
  // at the same time. CHECK: each end_change() has its begin_change().
  void begin_change(uint64_t bucket);
  void end_change(uint64_t bucket);
  void insert(KeyHash hash, uint8_t size_class, SlotOffset slot);
  // CHECK: the entry is there.
  void erase(KeyHash hash, SlotOffset slot);
  bool contains(KeyHash hash, SlotOffset slot) const {
    return find(hash, [&](BucketEntry entry) { return entry.slot() == slot; }).used();
  }

  uint64_t size() const { return size_; }
  uint64_t overflowed() const { return overflowed_; }
  std::span<std::byte> bytes() const { return std::as_writable_bytes(buckets_); }

 private:
  explicit HashIndex(std::span<Bucket> buckets) : buckets_(buckets) {}
  static void set(uint64_t& word, uint64_t value) {
    __atomic_store_n(&word, value, __ATOMIC_RELEASE);
  }
  std::span<Bucket> buckets_;
  std::unordered_map<uint64_t, std::vector<BucketEntry>> overflow_;
  // By bucket: the begin_change() calls beyond the first that were not ended yet.
  std::unordered_map<uint64_t, unsigned> changing_;
  uint64_t size_ = 0;
  uint64_t overflowed_ = 0;
};

}  // namespace pmstore::internal
