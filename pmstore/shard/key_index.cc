#include "pmstore/shard/key_index.h"

namespace pmstore::internal {

std::optional<OrderedIndex::Entry> KeyIndex::in_order(const IndexKey& key) const {
  const OrderedIndex* const tree = ordered(key.table);
  return tree != nullptr ? tree->find(key.key) : std::nullopt;
}

std::optional<IndexEntry> KeyIndex::record_in_order(const IndexKey& key) const {
  const auto entry = in_order(key);
  return entry ? entry->record : std::nullopt;
}

// A table's leaves take at most as much as all records of the pool.
Status KeyIndex::add_ordered(TableId table) {
  PMSTORE_CHECK(is_ordered(table) && ordered(table) == nullptr, "an ordered table has one index");
  std::unique_ptr<OrderedIndex> index;
  if (kept_.empty()) {
    PMSTORE_TRY(OrderedIndex made, OrderedIndex::create(records_bytes_));
    index = std::make_unique<OrderedIndex>(std::move(made));
  } else {
    index = std::move(kept_.back());
    kept_.pop_back();
    shared_.insert(index.get());
  }
  index->begin_table(table);
  ordered_.emplace(raw(table), std::move(index));
  return {};
}

void KeyIndex::forget_ordered(TableId table) {
  PMSTORE_CHECK(existing(table).size() == 0, "a table's index goes after its keys");
  auto gone = ordered_.extract(raw(table));
  if (shared_.erase(gone.mapped().get()) == 0) return;
  gone.mapped()->end_table();
  kept_.push_back(std::move(gone.mapped()));
}

std::span<std::byte> KeyIndex::share_chunk_of(TableId table, NodeId leaf) {
  OrderedIndex& index = existing(table);
  PMSTORE_CHECK(index.is_leaf(leaf), "clients READ leaves");
  shared_.insert(&index);
  return index.chunk_of(leaf);
}

uint64_t KeyIndex::ordered_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [table, tree] : ordered_) bytes += tree->bytes_in_use();
  return bytes;
}

}  // namespace pmstore::internal
