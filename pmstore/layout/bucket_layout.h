// Bucket: the hash index in the server's DRAM as clients READ it: fixed-width buckets, one READ
// each. docs/store.md describes it.
//
// An entry is 8 bytes and changes atomically: tag (16 bits of the key's hash), size class, slot
// number. `version` is odd while the server changes the bucket (insert, delete, move) and even
// while it is stable, and grows with each change. A client READs the bucket and then its version
// again, in the same doorbell. If both versions are the same even number, it has seen the bucket
// whole. "Not found" in such a bucket can be validated at commit by the version.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/checksum.h"
#include "pmstore/types.h"

namespace pmstore {

inline constexpr size_t kBucketEntries = 14;

struct Bucket {
  uint64_t version;
  uint64_t entries[kBucketEntries];  // 0: free
  uint64_t overflow;  // entries that only the server sees; if not 0, ask it by RPC for other keys
};
static_assert(sizeof(Bucket) == 128);

// Where an answer or a check names a bucket, it may name a leaf of an ordered table instead: a page
// of the table's index, by its number (pmstore/shard/tree_node.h).
inline constexpr uint64_t kLeafUnit = uint64_t{1} << 63;
constexpr bool is_leaf_unit(uint64_t unit) { return (unit & kLeafUnit) != 0; }
constexpr uint64_t leaf_unit(TableId table, uint32_t leaf) {
  return kLeafUnit | static_cast<uint64_t>(raw(table)) << 32 | leaf;
}

struct BucketEntry {
  uint64_t bits = 0;
  static constexpr BucketEntry make(uint16_t tag, uint8_t size_class, SlotOffset slot) {
    return {(static_cast<uint64_t>(tag) << 48) | (static_cast<uint64_t>(size_class) << 42) |
            (raw(slot) / 64 + 1)};
  }
  constexpr bool used() const { return bits != 0; }
  constexpr uint16_t tag() const { return static_cast<uint16_t>(bits >> 48); }
  constexpr uint8_t size_class() const { return (bits >> 42) & 0x3f; }
  constexpr SlotOffset slot() const {
    return static_cast<SlotOffset>(((bits & ((uint64_t{1} << 42) - 1)) - 1) * 64);
  }
};

struct KeyHash {
  uint64_t value;
  uint64_t bucket(uint64_t bucket_count) const { return value & (bucket_count - 1); }
  uint16_t tag() const { return static_cast<uint16_t>(value >> 48); }
};

inline KeyHash hash_key(TableId table, std::string_view key) {
  const auto bytes = std::as_bytes(std::span(key.data(), key.size()));
  return {base::checksum64(bytes, 0x706d73746f726531u + raw(table))};
}

}  // namespace pmstore
