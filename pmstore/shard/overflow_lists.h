// OverflowLists: for each bucket of the hash index, the entries for which it has no room.
//
// Entries come and go by the thousand while the index grows, and no change may take long. So the
// lists are in several tables, of which each enlarges itself at its own time, and their memory is
// the index's own: freed to the allocator of the process it would lie about in small pieces, which
// that joins in one go. Threads: the server's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>
#include <unordered_map>
#include <vector>

#include "pmstore/layout/bucket_layout.h"

namespace pmstore::internal {

class OverflowLists {
 public:
  using List = std::pmr::vector<BucketEntry>;

  OverflowLists() {
    tables_.reserve(kTables);
    for (size_t i = 0; i < kTables; ++i) tables_.emplace_back(memory_.get());
  }
  OverflowLists(OverflowLists&&) noexcept = default;

  // Null: the bucket has none. Valid until the bucket's list changes.
  const List* find(uint64_t bucket) const {
    const Table& table = tables_[bucket % kTables];
    const auto found = table.find(bucket);
    return found == table.end() ? nullptr : &found->second;
  }
  List* find(uint64_t bucket) {
    return const_cast<List*>(static_cast<const OverflowLists*>(this)->find(bucket));
  }
  // There will be so many lists more: the tables enlarge themselves once.
  void expect(size_t lists) {
    for (Table& table : tables_) table.reserve(table.size() + lists / kTables + 1);
  }
  // The bucket's list, for a further entry.
  List& of(uint64_t bucket) { return tables_[bucket % kTables][bucket]; }
  // Of a bucket without one.
  void put(uint64_t bucket, std::span<const BucketEntry> entries) {
    of(bucket).assign(entries.begin(), entries.end());
  }
  void erase(uint64_t bucket) { tables_[bucket % kTables].erase(bucket); }
  // Also ends the bucket's list.
  std::vector<BucketEntry> take(uint64_t bucket) {
    const List* const list = find(bucket);
    if (list == nullptr) return {};
    std::vector<BucketEntry> entries(list->begin(), list->end());
    erase(bucket);
    return entries;
  }

 private:
  static constexpr size_t kTables = 64;
  using Table = std::pmr::unordered_map<uint64_t, List>;

  // By address: the tables keep it when they move.
  std::unique_ptr<std::pmr::unsynchronized_pool_resource> memory_ =
      std::make_unique<std::pmr::unsynchronized_pool_resource>();
  std::vector<Table> tables_;
};

}  // namespace pmstore::internal
