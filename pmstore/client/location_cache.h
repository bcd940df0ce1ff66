// LocationCache: the shard and the slot in which a client last saw each key's record, so that a
// read is one round trip.
//
// Set-associative, fixed size, no keys: an entry is the key's 64-bit hash and the record's slot,
// with a small number for the shard, where a bucket's entry repeats the hash. It
// is only a hint: the reader compares key, table and version in the record that it reads, and
// removes an entry that proves wrong. Threads: one. Technique: location caches as in DrTM and FaRM.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "pmstore/client/shard_id.h"
#include "pmstore/layout/bucket_layout.h"

namespace pmstore::internal {

class LocationCache {
 public:
  // Room for at least `entries`, a power of two of sets; 0: never finds anything.
  explicit LocationCache(size_t entries);

  // An unused entry when the key is not in the cache, or was last seen in another shard.
  BucketEntry find(KeyHash hash, ShardId shard) const {
    if (sets_.empty()) return {};
    for (const Way& way : set_of(hash).ways) {
      if (way.hash != hash.value || !way.where.used()) continue;
      if (shards_[way.where.tag()] != shard) return {};
      return BucketEntry::make(hash.tag(), way.where.size_class(), way.where.slot());
    }
    return {};
  }
  // Of more than kMostShards shards, those that came last are not remembered.
  void put(KeyHash hash, ShardId shard, uint8_t size_class, SlotOffset slot);
  void remove(KeyHash hash);

  static constexpr size_t kMostShards = 1024;

 private:
  struct Way {
    uint64_t hash = 0;
    BucketEntry where;  // its tag is a number in shards_
  };
  struct alignas(64) Set {
    std::array<Way, 4> ways;  // youngest first
  };
  static_assert(sizeof(Set) == 64, "a lookup touches one cache line");

  // The tag and the server's bucket use the low half of the hash, so this is independent of them.
  size_t index_of(KeyHash hash) const { return (hash.value >> 32) & (sets_.size() - 1); }
  const Set& set_of(KeyHash hash) const { return sets_[index_of(hash)]; }
  std::optional<uint16_t> number_of(ShardId shard);

  std::vector<Set> sets_;
  std::vector<ShardId> shards_;  // in the order in which they were seen
};

}  // namespace pmstore::internal
