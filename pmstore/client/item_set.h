// ItemSet: the items of one transaction with their keys and values, in the order of first access.
//
// A few items are found by looking at each, more of them by a table of their hashes.
// Invariants: one item per table and key; every item is in places_, or there are at most kFew and
// places_ is empty. The keys and values of all items lie in one string, so
// that a transaction that is used again allocates nothing. Views that key() and value() return, and
// references to items, end with the next find_or_add() or set_value(). Threads: the executor's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "pmstore/client/tx_item.h"

namespace pmstore::internal {

class ItemSet {
 public:
  // nullptr: the transaction has not touched this key.
  TxItem* find(TableId table, std::string_view key, KeyHash hash);
  // CHECK: the key has at most kMaxKeyBytes.
  TxItem& find_or_add(TableId table, std::string_view key, KeyHash hash);
  // Copies `value`. It replaces the item's earlier value.
  void set_value(TxItem& item, std::string_view value);
  // Removes all items and keeps the memory.
  void clear() {
    items_.clear();
    bytes_.clear();
    places_.clear();
  }

  std::string_view key(const TxItem& item) const { return piece(item.key_offset, item.key_bytes); }
  std::string_view value(const TxItem& item) const {
    return piece(item.value_offset, item.value_bytes);
  }
  bool has_writes() const {
    for (const TxItem& item : items_) {
      if (item.writes()) return true;
    }
    return false;
  }

  bool empty() const { return items_.empty(); }
  size_t size() const { return items_.size(); }
  TxItem& operator[](size_t index) { return items_[index]; }
  const TxItem& operator[](size_t index) const { return items_[index]; }
  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  // Of the keys and values.
  size_t bytes() const { return bytes_.size(); }
  size_t capacity_bytes() const {
    return bytes_.capacity() + items_.capacity() * sizeof(TxItem) +
           places_.capacity() * sizeof(uint32_t);
  }

 private:
  static constexpr size_t kFew = 16;

  bool is(const TxItem& item, TableId table, std::string_view key, KeyHash hash) const {
    return item.hash.value == hash.value && item.table == table && this->key(item) == key;
  }
  void note_place(uint32_t index);
  std::string_view piece(uint32_t offset, uint32_t count) const {
    PMSTORE_CHECK(offset <= bytes_.size() && count <= bytes_.size() - offset,
                  "an item's key and value lie in the bytes of its set");
    return {bytes_.data() + offset, count};
  }

  std::vector<TxItem> items_;
  std::string bytes_;
  // By hash, with open addressing, at most half full: the number of an item, counted from 1.
  std::vector<uint32_t> places_;
};

}  // namespace pmstore::internal
