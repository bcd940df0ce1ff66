// LocationCache: the slot in which a client last saw each key's record, so that a read is one round
// trip.
//
// Set-associative, fixed size, no keys: an entry is the key's 64-bit hash and the record's slot. It
// is only a hint: the reader compares key, table and version in the record that it reads, and
// removes an entry that proves wrong. Threads: one. Technique: location caches as in DrTM and FaRM.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "pmstore/layout/bucket_layout.h"

namespace pmstore::internal {

class LocationCache {
 public:
  // Room for at least `entries`, a power of two of sets; 0: never finds anything.
  explicit LocationCache(size_t entries);

  // An unused entry when the key is not in the cache.
  BucketEntry find(KeyHash hash) const {
    if (sets_.empty()) return {};
    for (const Way& way : set_of(hash).ways) {
      if (way.hash == hash.value && way.where.used()) return way.where;
    }
    return {};
  }
  void put(KeyHash hash, uint8_t size_class, SlotOffset slot);
  void remove(KeyHash hash);

 private:
  struct Way {
    uint64_t hash = 0;
    BucketEntry where;
  };
  struct alignas(64) Set {
    std::array<Way, 4> ways;  // youngest first
  };
  static_assert(sizeof(Set) == 64, "a lookup touches one cache line");

  // The tag and the server's bucket use both ends of the hash, so its middle is independent of
  // them.
  size_t index_of(KeyHash hash) const { return (hash.value >> 16) & (sets_.size() - 1); }
  const Set& set_of(KeyHash hash) const { return sets_[index_of(hash)]; }

  std::vector<Set> sets_;
};

}  // namespace pmstore::internal
