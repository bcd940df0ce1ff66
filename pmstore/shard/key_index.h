// KeyIndex: finds the slot of a record by its table and key. DRAM, rebuilt at each start.
//
// All that the store knows of its index goes through this class, so that another kind of index can
// be put behind it. Today there is one kind, a hash index. An ordered index would implement the
// same functions with its leaves as units: an IndexKey has table and key as well as their hash. The
// class is final and its functions are inline, not virtual: a probe of the index is on the path of
// every get and every write.
//
// A unit is the part of the index that changes when a key appears or disappears (a bucket of the
// hash index). Its version is even while the unit is stable, odd while it changes, and never
// returns to an earlier value; so "key not found" is validated at commit by the version of the
// key's unit. Clients READ the buckets one-sided (pmstore/layout/bucket_layout.h): bytes() is what
// they read.
//
// Invariants: an entry is inserted or removed only between begin_change() and end_change() of its
// unit; what is removed is in the index. Threads: the server's; clients read concurrently.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "pmstore/shard/hash_index.h"

namespace pmstore::internal {

// Table and key of a record, with their hash, which is computed once.
struct IndexKey {
  TableId table;
  std::string_view key;
  KeyHash hash;
  static IndexKey of(TableId table, std::string_view key) {
    return {table, key, hash_key(table, key)};
  }
  bool operator==(const IndexKey& other) const {
    return hash.value == other.hash.value && table == other.table && key == other.key;
  }
};

struct IndexEntry {
  SlotOffset slot;
  uint8_t size_class;
};

class KeyIndex final {
 public:
  // For `records_bytes` bytes of records. Io when there is no memory.
  static Result<KeyIndex> create(uint64_t records_bytes) {
    PMSTORE_TRY(HashIndex hash, HashIndex::create(records_bytes));
    return KeyIndex(std::move(hash));
  }

  // Keys are not kept in the index: calls match(IndexEntry) -> bool for each entry that may be the
  // key's, until it says true, and gives that entry. nullopt when it never does.
  template <typename Match>
  std::optional<IndexEntry> find(const IndexKey& key, Match&& match) const {
    const BucketEntry entry = hash_.find(key.hash, [&](BucketEntry candidate) {
      return match(IndexEntry{candidate.slot(), candidate.size_class()});
    });
    if (!entry.used()) return std::nullopt;
    return IndexEntry{entry.slot(), entry.size_class()};
  }
  bool contains(const IndexKey& key, SlotOffset slot) const {
    return hash_.contains(key.hash, slot);
  }

  uint64_t unit_of(const IndexKey& key) const { return hash_.bucket_of(key.hash); }
  bool has_unit(uint64_t unit) const { return unit < hash_.bucket_count(); }
  uint64_t version(uint64_t unit) const { return hash_.version(unit); }

  // Gives the unit, for end_change(). Changes of one unit nest: the unit is stable again when the
  // last change has ended.
  uint64_t begin_change(const IndexKey& key) {
    const uint64_t unit = unit_of(key);
    hash_.begin_change(unit);
    return unit;
  }
  void end_change(uint64_t unit) { hash_.end_change(unit); }
  void insert(const IndexKey& key, uint8_t size_class, SlotOffset slot) {
    hash_.insert(key.hash, size_class, slot);
  }
  void remove(const IndexKey& key, SlotOffset slot) { hash_.erase(key.hash, slot); }

  // A whole change of one entry.
  void insert_alone(const IndexKey& key, uint8_t size_class, SlotOffset slot) {
    const uint64_t unit = begin_change(key);
    insert(key, size_class, slot);
    end_change(unit);
  }
  void remove_alone(const IndexKey& key, SlotOffset slot) {
    const uint64_t unit = begin_change(key);
    remove(key, slot);
    end_change(unit);
  }

  uint64_t size() const { return hash_.size(); }
  // Entries that clients cannot see, because their bucket is full.
  uint64_t overflowed() const { return hash_.overflowed(); }
  std::span<std::byte> bytes() const { return hash_.bytes(); }

 private:
  explicit KeyIndex(HashIndex hash) : hash_(std::move(hash)) {}
  HashIndex hash_;
};

}  // namespace pmstore::internal
