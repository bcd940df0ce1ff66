// Bucket: the hash index in the server's DRAM as clients READ it: fixed-width buckets, one READ
// each. docs/store.md describes it.
//
// An entry is 8 bytes and changes atomically: tag (23 bits of the key's hash), size class, slot
// number. `version` is odd while the server changes the bucket (insert, delete, move, split, merge)
// and even while it is stable, and grows with each change. A client READs the bucket and then its
// version again, in the same doorbell. If both versions are the same even number, it has seen the
// bucket whole. "Not found" in such a bucket can be validated at commit by the version.
//
// The index grows and shrinks by one bucket at a time, so a client's idea of its size may be old.
// The bucket itself says what it holds: a bucket of depth d holds the keys whose hash ends with the
// d low bits of its number. A bucket that is not in use is all zero, or has depth 0: its keys are
// in the bucket from which it splits off, its parent.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/checksum.h"
#include "pmstore/types.h"

namespace pmstore {

inline constexpr size_t kBucketEntries = 14;
// So many buckets are a piece, which clients reach as one region (RegionKind::kBuckets).
inline constexpr uint64_t kBucketsPerPiece = 8192;
// The depth of a bucket that never split, and the greatest one. Between them are the bits of the
// hash that an entry repeats: a split finds in the entry to which side it goes.
inline constexpr unsigned kLeastDepth = 9;
inline constexpr unsigned kMostDepth = 32;
inline constexpr uint64_t kMostBuckets = uint64_t{1} << kMostDepth;
inline constexpr unsigned kTagBits = kMostDepth - kLeastDepth;

struct KeyHash {
  uint64_t value;
  // In an index of so many buckets that has no split or merge to make up for.
  uint64_t bucket(uint64_t bucket_count) const {
    const uint64_t whole = std::bit_floor(bucket_count);
    const uint64_t deeper = value & (2 * whole - 1);
    return deeper < bucket_count ? deeper : deeper & (whole - 1);
  }
  uint64_t bucket_of_depth(unsigned depth) const { return value & ((uint64_t{1} << depth) - 1); }
  uint32_t tag() const {
    return static_cast<uint32_t>(value >> kLeastDepth) & ((1u << kTagBits) - 1);
  }
};

// The bucket from which `bucket` splits off. Requires that it is not 0.
constexpr uint64_t parent_bucket(uint64_t bucket) { return bucket - std::bit_floor(bucket); }

// The last word of a bucket: its depth, and how many entries only the server sees. If these are not
// 0, the server must be asked by RPC for keys that are not among the entries.
struct BucketShape {
  uint64_t bits = 0;
  static constexpr BucketShape make(unsigned depth, uint64_t overflow) {
    return {static_cast<uint64_t>(depth) << 56 | overflow};
  }
  constexpr bool in_use() const { return depth() != 0; }
  constexpr unsigned depth() const { return static_cast<unsigned>(bits >> 56); }
  constexpr uint64_t overflow() const { return bits & ((uint64_t{1} << 56) - 1); }
  bool holds(KeyHash hash, uint64_t bucket) const {
    return in_use() && depth() <= kMostDepth && hash.bucket_of_depth(depth()) == bucket;
  }
};

struct Bucket {
  uint64_t version;
  uint64_t entries[kBucketEntries];  // 0: free
  BucketShape shape;
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
  static constexpr unsigned kSlotBits = 36;
  static constexpr unsigned kTagShift = 64 - kTagBits;
  // Slots lie below this offset.
  static constexpr uint64_t kMostRecordsBytes = ((uint64_t{1} << kSlotBits) - 1) * 64;

  static constexpr BucketEntry make(uint32_t tag, uint8_t size_class, SlotOffset slot) {
    return {(static_cast<uint64_t>(tag) << kTagShift) |
            (static_cast<uint64_t>(size_class) << kSlotBits) | (raw(slot) / 64 + 1)};
  }
  constexpr bool used() const { return bits != 0; }
  constexpr uint32_t tag() const { return static_cast<uint32_t>(bits >> kTagShift); }
  constexpr uint8_t size_class() const { return (bits >> kSlotBits) & 0x1f; }
  constexpr SlotOffset slot() const {
    return static_cast<SlotOffset>(((bits & ((uint64_t{1} << kSlotBits) - 1)) - 1) * 64);
  }
  // Of the key's hash: the bit that decides where a split of a bucket of this depth puts the entry.
  constexpr bool hash_bit(unsigned depth) const {
    return (bits >> (kTagShift + depth - kLeastDepth) & 1) != 0;
  }
};
static_assert(BucketEntry::kSlotBits + 5 == BucketEntry::kTagShift, "5 bits of size class");

inline KeyHash hash_key(TableId table, std::string_view key) {
  const auto bytes = std::as_bytes(std::span(key.data(), key.size()));
  return {base::checksum64(bytes, 0x706d73746f726531u + raw(table))};
}

}  // namespace pmstore
