#include "pmstore/shard/hash_index.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "pmstore/shard/shared_pages.h"

namespace pmstore::internal {

Result<HashIndex> HashIndex::create(uint64_t records_bytes) {
  const uint64_t count = std::bit_ceil(std::max<uint64_t>(records_bytes / 128 / 8, 64));
  auto pages = map_pages(count * sizeof(Bucket), PagesUse::kAnywhere);
  if (!pages) return pages.error();
  return HashIndex(std::span(reinterpret_cast<Bucket*>(pages->data()), count));
}

HashIndex::HashIndex(HashIndex&& other) noexcept
    : buckets_(std::exchange(other.buckets_, {})),
      overflow_(std::move(other.overflow_)),
      changing_(std::move(other.changing_)),
      size_(other.size_),
      overflowed_(other.overflowed_) {}

HashIndex::~HashIndex() { unmap_pages(bytes()); }

void HashIndex::begin_change(uint64_t bucket) {
  const uint64_t version = buckets_[bucket].version;
  if (version % 2 == 0) {
    set(buckets_[bucket].version, version + 1);
  } else {
    ++changing_[bucket];
  }
}

void HashIndex::end_change(uint64_t bucket) {
  if (!changing_.empty()) {
    if (auto deeper = changing_.find(bucket); deeper != changing_.end()) {
      if (--deeper->second == 0) changing_.erase(deeper);
      return;
    }
  }
  PMSTORE_CHECK(buckets_[bucket].version % 2 == 1, "end_change() follows begin_change()");
  set(buckets_[bucket].version, buckets_[bucket].version + 1);
}

void HashIndex::insert(KeyHash hash, uint8_t size_class, SlotOffset slot) {
  Bucket& bucket = buckets_[bucket_of(hash)];
  PMSTORE_CHECK(bucket.version % 2 == 1, "a bucket changes only between begin and end");
  const BucketEntry entry = BucketEntry::make(hash.tag(), size_class, slot);
  PMSTORE_CHECK(entry.slot() == slot && entry.size_class() == size_class,
                "an entry has room for every slot of the largest pool");
  ++size_;
  for (uint64_t& word : bucket.entries) {
    if (word == 0) {
      set(word, entry.bits);
      return;
    }
  }
  std::vector<BucketEntry>& list = overflow_[bucket_of(hash)];
  list.push_back(entry);
  set(bucket.overflow, bucket.overflow + 1);
  PMSTORE_CHECK(list.size() == bucket.overflow, "the overflow word is the length of the list");
  ++overflowed_;
}

void HashIndex::erase(KeyHash hash, SlotOffset slot) {
  Bucket& bucket = buckets_[bucket_of(hash)];
  PMSTORE_CHECK(bucket.version % 2 == 1, "a bucket changes only between begin and end");
  for (uint64_t& word : bucket.entries) {
    if (word == 0 || BucketEntry{word}.slot() != slot) continue;
    --size_;
    if (bucket.overflow == 0) {
      set(word, 0);
      return;
    }
    // Clients find what is in the bucket itself without asking: refill it from the overflow.
    auto list = overflow_.find(bucket_of(hash));
    PMSTORE_CHECK(list != overflow_.end() && list->second.size() == bucket.overflow,
                  "the overflow word is the length of the list");
    set(word, list->second.back().bits);
    list->second.pop_back();
    if (list->second.empty()) overflow_.erase(list);
    set(bucket.overflow, bucket.overflow - 1);
    --overflowed_;
    return;
  }
  auto list = overflow_.find(bucket_of(hash));
  PMSTORE_CHECK(list != overflow_.end(), "what is erased is in the index");
  auto found = std::find_if(list->second.begin(), list->second.end(),
                            [&](BucketEntry entry) { return entry.slot() == slot; });
  PMSTORE_CHECK(found != list->second.end(), "what is erased is in the index");
  list->second.erase(found);
  if (list->second.empty()) overflow_.erase(list);
  set(bucket.overflow, bucket.overflow - 1);
  --overflowed_;
  --size_;
}

}  // namespace pmstore::internal
