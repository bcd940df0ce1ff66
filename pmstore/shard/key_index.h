// KeyIndex: finds the slot of a record by its table and key. DRAM, rebuilt at each start.
//
// All that the store knows of its index goes through this class. It has two kinds: one hash index
// for all hash tables, and an ordered index for each ordered table; the table's id says which is
// asked (pmstore/types.h). The class is final and its functions are inline, not virtual: a probe of
// the index is on the path of every get and every write.
//
// A unit is the part of the index that changes when a key appears or disappears: a bucket of the
// hash index, a leaf of an ordered one. Its version is even while the unit is stable, odd while it
// changes, and never returns to an earlier value; so "key not found" is validated at commit by the
// version of the key's unit. Clients READ the buckets one-sided (pmstore/layout/bucket_layout.h) in
// pieces (HashIndex::piece()). Of ordered tables they READ leaves (share_chunk_of()).
//
// Invariants: an entry is inserted or removed only between begin_change() and end_change() of its
// key; what is removed is in the index. Threads: the server's; clients read concurrently.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/result.h"
#include "pmstore/shard/hash_index.h"
#include "pmstore/shard/index_entry.h"
#include "pmstore/shard/ordered_index.h"

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

class KeyIndex final {
 public:
  // For `records_bytes` bytes of records. Io when there is no memory.
  static Result<KeyIndex> create(uint64_t records_bytes) {
    PMSTORE_TRY(HashIndex hash, HashIndex::create(records_bytes));
    return KeyIndex(std::move(hash), records_bytes);
  }

  // Keys are not kept in the hash index: calls match(IndexEntry) -> bool for each entry that may be
  // the key's, until it says true, and gives that entry. nullopt when it never does.
  template <typename Match>
  std::optional<IndexEntry> find(const IndexKey& key, Match&& match) const {
    if (is_ordered(key.table)) {
      const auto record = record_in_order(key);
      return record && match(*record) ? record : std::nullopt;
    }
    const BucketEntry entry = hash_.find(key.hash, [&](BucketEntry candidate) {
      return match(IndexEntry{candidate.slot(), candidate.size_class()});
    });
    if (!entry.used()) return std::nullopt;
    return IndexEntry{entry.slot(), entry.size_class()};
  }
  // Asks for the memory that find() looks at first. Inline as LockTable::prefetch().
  [[gnu::always_inline]] void prefetch(const IndexKey& key) const {
    if (!is_ordered(key.table)) hash_.prefetch(key.hash);
  }
  bool contains(const IndexKey& key, SlotOffset slot) const {
    if (!is_ordered(key.table)) return hash_.contains(key.hash, slot);
    const auto record = record_in_order(key);
    return record && record->slot == slot;
  }

  uint64_t unit_of(const IndexKey& key) const {
    if (!is_ordered(key.table)) return hash_.bucket_of(key.hash);
    return unit_of_leaf(key.table, existing(key.table).leaf_of(key.key));
  }
  static uint64_t unit_of_leaf(TableId table, NodeId leaf) { return leaf_unit(table, leaf); }
  // False: no client was ever told of such a unit.
  bool has_unit(uint64_t unit) const { return is_leaf_unit(unit) || unit < hash_.end_of_buckets(); }
  // Odd also for a leaf that there is not any more.
  uint64_t version(uint64_t unit) const {
    if (!is_leaf_unit(unit)) return hash_.version(unit);
    const OrderedIndex* const tree = tree_of(unit);
    return tree != nullptr ? tree->version(leaf_of(unit)) : UINT64_MAX;
  }
  // Whether the unit is as it was at `version`, which was even. In a leaf there may be changes that
  // have not ended, if is_own(IndexEntry) -> bool says true for their records.
  template <typename IsOwn>
  bool is_as_at(uint64_t unit, uint64_t version_then, IsOwn&& is_own) const {
    if (version_then % 2 == 1) return false;
    const uint64_t now = version(unit);
    if (now == version_then) return true;
    const OrderedIndex* const tree = is_leaf_unit(unit) ? tree_of(unit) : nullptr;
    return tree != nullptr && now == version_then + 1 &&
           tree->all_changes_are(leaf_of(unit), is_own);
  }

  // The key's unit is odd until end_change(). Changes of several keys of a unit nest; a key of an
  // ordered table has one at a time (CHECK). Full: the ordered index has no memory for another key;
  // nothing has changed.
  Status begin_change(const IndexKey& key) {
    if (is_ordered(key.table)) return existing(key.table).begin_change(key.key);
    hash_.begin_change(key.hash);
    return {};
  }
  void end_change(const IndexKey& key) {
    if (is_ordered(key.table)) return existing(key.table).end_change(key.key);
    hash_.end_change(key.hash);
  }
  void insert(const IndexKey& key, uint8_t size_class, SlotOffset slot) {
    ++size_;
    if (is_ordered(key.table)) return existing(key.table).insert(key.key, {slot, size_class});
    hash_.insert(key.hash, size_class, slot);
  }
  void remove(const IndexKey& key, SlotOffset slot) {
    --size_;
    if (is_ordered(key.table)) return existing(key.table).remove(key.key);
    hash_.erase(key.hash, slot);
  }

  // A whole change of one entry. Errors of begin_change().
  Status insert_alone(const IndexKey& key, uint8_t size_class, SlotOffset slot) {
    PMSTORE_TRY_STATUS(begin_change(key));
    insert(key, size_class, slot);
    end_change(key);
    return {};
  }
  void remove_alone(const IndexKey& key, SlotOffset slot) {
    const Status begun = begin_change(key);
    PMSTORE_CHECK(begun, "a key that is there needs no memory");
    remove(key, slot);
    end_change(key);
  }

  // What the index of an ordered table has for the key. nullopt also when there is no such table.
  std::optional<OrderedIndex::Entry> in_order(const IndexKey& key) const;
  // Of a key of an ordered table: is_own(IndexEntry) -> bool says true for every entry of the key's
  // leaf that is in change.
  template <typename IsOwn>
  bool all_changes_near(const IndexKey& key, IsOwn&& is_own) const {
    const OrderedIndex& tree = existing(key.table);
    return tree.all_changes_are(tree.leaf_of(key.key), is_own);
  }

  // The index of an ordered table; nullptr: there is no such table.
  const OrderedIndex* ordered(TableId table) const {
    const auto at = ordered_.find(raw(table));
    return at == ordered_.end() ? nullptr : at->second.get();
  }
  // Before the first key of an ordered table. Io when there is no memory.
  Status add_ordered(TableId table);
  // The table is dropped: clients that READ its leaves find them no more. Its keys are still there.
  void leave_ordered(TableId table);
  // From here on the next add_ordered() succeeds. Io: there is no memory for another index.
  Status provide_ordered();
  // After the last one (CHECK): frees what the table's index holds; but what clients may READ is
  // kept for the next ordered table.
  void forget_ordered(TableId table);
  // The memory around a leaf, for clients to READ: it stays mapped as long as this index.
  std::span<std::byte> share_chunk_of(TableId table, NodeId leaf);

  // Conflict: a key is in change.
  Status save(CheckpointWriter& writer) const;
  // Into the empty index with the same ordered tables, when the load runs. Damaged: it is not of
  // such an index.
  Status load(CheckpointLoad& load);

  uint64_t size() const { return size_; }
  // Entries that clients cannot see, because their bucket is full.
  uint64_t overflowed() const { return hash_.overflowed(); }
  uint64_t hash_bytes() const { return hash_.bytes_in_use(); }
  // The hash index for clients to READ, and how it grows: see hash_index.h.
  HashIndex& hash() { return hash_; }
  const HashIndex& hash() const { return hash_; }
  uint64_t ordered_bytes() const;

 private:
  static NodeId leaf_of(uint64_t unit) { return static_cast<NodeId>(unit); }
  // nullptr: there is no such leaf any more.
  const OrderedIndex* tree_of(uint64_t leaf_unit) const {
    const OrderedIndex* const tree = ordered(static_cast<TableId>(leaf_unit >> 32 & 0xffff));
    return tree != nullptr && tree->is_leaf(leaf_of(leaf_unit)) ? tree : nullptr;
  }
  KeyIndex(HashIndex hash, uint64_t records_bytes)
      : hash_(std::move(hash)), records_bytes_(records_bytes) {}
  std::optional<IndexEntry> record_in_order(const IndexKey& key) const;
  OrderedIndex& existing(TableId table) const {
    const auto at = ordered_.find(raw(table));
    PMSTORE_CHECK(at != ordered_.end(), "an ordered table has its index from its first moment on");
    return *at->second;
  }

  std::vector<std::pair<std::string, SlotOffset>> records_of(TableId table) const;

  HashIndex hash_;
  uint64_t records_bytes_;
  std::unordered_map<uint16_t, std::unique_ptr<OrderedIndex>> ordered_;
  std::unordered_set<const OrderedIndex*> shared_;   // of ordered_: clients may READ its memory
  std::vector<std::unique_ptr<OrderedIndex>> kept_;  // shared ones of tables that were dropped
  std::unique_ptr<OrderedIndex> spare_;              // of the next table
  uint64_t size_ = 0;
};

}  // namespace pmstore::internal
