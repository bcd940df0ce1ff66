#include "pmstore/shard/key_index.h"

#include <utility>
#include <vector>

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
Status KeyIndex::provide_ordered() {
  if (spare_ || !kept_.empty()) return {};
  PMSTORE_TRY(OrderedIndex made, OrderedIndex::create(records_bytes_));
  spare_ = std::make_unique<OrderedIndex>(std::move(made));
  return {};
}

Status KeyIndex::add_ordered(TableId table) {
  PMSTORE_CHECK(is_ordered(table) && ordered(table) == nullptr, "an ordered table has one index");
  PMSTORE_TRY_STATUS(provide_ordered());
  std::unique_ptr<OrderedIndex> index = std::exchange(spare_, nullptr);
  if (index == nullptr) {
    index = std::move(kept_.back());
    kept_.pop_back();
    shared_.insert(index.get());
  }
  index->begin_table(table);
  ordered_.emplace(raw(table), std::move(index));
  return {};
}

void KeyIndex::leave_ordered(TableId table) {
  OrderedIndex& index = existing(table);
  if (shared_.contains(&index)) index.leave_table();
}

void KeyIndex::forget_ordered(TableId table) {
  // The walk over the slots does not find the key of a record that the medium has damaged. Its slot
  // is not used again: the next start gives it up.
  for (const auto& [key, slot] : records_of(table)) remove_alone(IndexKey::of(table, key), slot);
  PMSTORE_CHECK(existing(table).size() == 0, "a table's index goes after its keys");
  auto gone = ordered_.extract(raw(table));
  if (shared_.erase(gone.mapped().get()) == 0) return;
  gone.mapped()->end_table();
  kept_.push_back(std::move(gone.mapped()));
}

std::vector<std::pair<std::string, SlotOffset>> KeyIndex::records_of(TableId table) const {
  std::vector<std::pair<std::string, SlotOffset>> records;
  const auto on_leaf = [](OrderedIndex::Leaf) { return true; };
  const auto on_key = [&](OrderedIndex::LeafKey key, OrderedIndex::Entry entry) {
    TreeNode::KeyRoom room;
    if (entry.record) records.emplace_back(key.in(room), entry.record->slot);
    return true;
  };
  ordered(table)->walk({}, OrderedIndex::Direction::kForward, on_leaf, on_key);
  return records;
}

std::span<std::byte> KeyIndex::share_chunk_of(TableId table, NodeId leaf) {
  OrderedIndex& index = existing(table);
  PMSTORE_CHECK(index.is_leaf(leaf), "clients READ leaves");
  shared_.insert(&index);
  return index.chunk_of(leaf);
}

Status KeyIndex::save(CheckpointWriter& writer) const {
  PMSTORE_TRY_STATUS(hash_.save(writer));
  for (const auto& [table, tree] : ordered_) {
    PMSTORE_TRY_STATUS(tree->save(writer));
  }
  return {};
}

Status KeyIndex::load(CheckpointLoad& load) {
  PMSTORE_TRY_STATUS(hash_.load(load));
  if (load.reader().parts("tree") != ordered_.size()) {
    return make_error(ErrorCode::kDamaged, "it has other ordered tables");
  }
  for (const auto& [table, tree] : ordered_) {
    PMSTORE_TRY_STATUS(tree->load(load));
  }
  load.add_step([this] {
    size_ = hash_.size();
    for (const auto& [table, tree] : ordered_) size_ += tree->size();
    return true;
  });
  return {};
}

uint64_t KeyIndex::ordered_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [table, tree] : ordered_) bytes += tree->bytes_in_use();
  return bytes;
}

}  // namespace pmstore::internal
