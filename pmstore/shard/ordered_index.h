// OrderedIndex: the keys of one ordered table in order, each with the slot of its record. A B+-tree
// in DRAM, rebuilt at each start; docs/ordered-tables.md describes it.
//
// What a scan relies on: each leaf has a version, which is odd while transactions insert or remove
// keys of the leaf, and grows when the leaf's set of keys has changed, by whatever: insert, erase,
// split, merge. A range whose leaves have the same even versions as before has the same keys. A
// leaf that was given up never shows an earlier version again.
//
// A change has a begin and an end, so that other transactions see it coming: begin_change() marks
// the key's entry, and places one without a record where the key is absent; insert() and remove()
// set the record; end_change() makes the entry stable, or takes it out when it has no record.
// Without insert() and remove() in between nothing has changed. Leaves may split and merge
// meanwhile: each call names the key, never a leaf.
//
// Clients READ leaves one-sided, in chunks of the index's memory that were registered for them: so
// memory of which a client was told is never unmapped, but used for another table.
//
// Invariants: a leaf's version is odd exactly while an entry of it is in change; an entry without a
// record is in change; fences of neighbouring leaves meet, and cover all keys.
// Threads: the server's.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "pmstore/shard/checkpoint_load.h"
#include "pmstore/shard/checkpoint_writer.h"
#include "pmstore/shard/index_entry.h"
#include "pmstore/shard/tree_node.h"

namespace pmstore::internal {

class OrderedIndex {
 public:
  struct Entry {
    std::optional<IndexEntry> record;
    bool in_change;
  };
  // A leaf at the moment when a walk came to it.
  struct Leaf {
    NodeId id;
    uint64_t version;
  };
  enum class Direction : uint8_t { kForward, kBackward };
  // Keys from `from` on, before `to`; an empty `to` is behind all keys.
  struct Range {
    std::string_view from;
    std::string_view to;
    bool is_behind(std::string_view key) const { return !to.empty() && key >= to; }
  };

  // Takes at most `max_bytes` of memory, as it is needed. Io when there is no memory.
  static Result<OrderedIndex> create(uint64_t max_bytes);
  OrderedIndex(OrderedIndex&&) noexcept;
  OrderedIndex& operator=(OrderedIndex&&) = delete;
  ~OrderedIndex();

  // What a value of a leaf says.
  static Entry unpack(uint64_t value);

  // An empty index becomes this table's, and its nodes say so.
  void begin_table(TableId table);
  // The table is dropped: no leaf says any more that it is this table's. Its keys go one by one.
  void leave_table();
  // Gives all nodes back: no page is a leaf from here on. CHECK: no key is left.
  void end_table();

  static constexpr size_t kChunkBytes = 4 << 20;
  static constexpr size_t kChunkNodes = kChunkBytes / kNodeBytes;
  // The memory in which node `id` lies, with its neighbours. The first chunk has node 0.
  std::span<std::byte> chunk_of(NodeId id) const;
  // Of a node that is_leaf(): its fences.
  TreeNode::Fences fences(NodeId leaf) const { return {node(leaf).low(), node(leaf).high()}; }

  std::optional<Entry> find(std::string_view key) const;
  // Full: the index has no memory for another key; nothing has changed. CHECK: the key is not in
  // change. Of the others: it is.
  Status begin_change(std::string_view key);
  void insert(std::string_view key, IndexEntry record);
  void remove(std::string_view key);
  void end_change(std::string_view key);

  // The leaf that has, or would have, the key.
  NodeId leaf_of(std::string_view key) const;
  bool is_leaf(NodeId id) const {
    return id != kNoNode && id < nodes_used_ && node(id).level() == 0;
  }
  // Of a node that is_leaf().
  uint64_t version(NodeId leaf) const { return node(leaf).load_version(); }
  // Of a node that is_leaf(): is_own(IndexEntry) -> bool says true for the record of each entry in
  // change. False for an entry that has no record.
  template <typename IsOwn>
  bool all_changes_are(NodeId leaf, IsOwn&& is_own) const;

  // A key in a leaf, which puts it together in `room`.
  struct LeafKey {
    const TreeNode& leaf;
    uint16_t index;
    std::string_view in(TreeNode::KeyRoom& room) const { return leaf.key(index, room); }
  };
  // Calls on_leaf(Leaf) -> bool for each leaf that has a part of the range, in order, and then
  // on_key(LeafKey, Entry) -> bool for each key of the range in the leaf, until one says false. The
  // key is valid until on_key returns. Neither may change the index.
  template <typename OnLeaf, typename OnKey>
  void walk(Range range, Direction direction, OnLeaf on_leaf, OnKey on_key) const;

  // The nodes as they are. Conflict: a key is in change.
  Status save(CheckpointWriter& writer) const;
  // Into the empty index of the same table, when the load runs. Damaged: it is of no such index.
  Status load(CheckpointLoad& load);

  // Of entries, with and without a record.
  uint64_t size() const { return size_; }
  uint64_t bytes_in_use() const { return (nodes_used_ - 1 - free_.size()) * kNodeBytes; }
  // CHECKs the whole tree: for tests. Takes time in proportion to the index.
  void check_all() const;

 private:
  // A node on the way to a leaf, and which of its children is on the way.
  struct Step {
    NodeId node;
    uint16_t child;
  };
  static constexpr size_t kMaxLevels = 12;
  struct Path {
    Step steps[kMaxLevels];
    size_t length = 0;
    NodeId leaf = kNoNode;
  };

  explicit OrderedIndex(std::span<std::byte> memory);
  // The nodes of a part of a checkpoint, by their number.
  std::span<std::byte> part_of_nodes(uint32_t part, uint64_t nodes) const;
  uint32_t part_number(uint64_t part) const;
  TreeNode& node(NodeId id) const { return reinterpret_cast<TreeNode*>(memory_.data())[id]; }
  static uint64_t pack(Entry entry);

  Path path_to(std::string_view key) const;
  // The leaf of the greatest key before `to`, where keys of each length are possible.
  NodeId last_leaf_before(std::string_view to) const;
  bool has_free_nodes(size_t count) const;
  NodeId take_node();
  void free_node(NodeId id);

  // The leaf and place of a key that is in change.
  struct Found {
    TreeNode& leaf;
    uint16_t index;
    Entry entry;
  };
  Found changing(std::string_view key) const;
  // The key's place in its leaf.
  TreeNode::Place place_in(NodeId leaf, std::string_view key) const;
  // Makes room for the key in its leaf. Full.
  Result<NodeId> leaf_with_room(std::string_view key);
  void split(Path& path, std::string_view key);
  NodeId split_inner(Path& path, size_t depth, std::string_view separator);
  void add_child(Path& path, size_t depth, std::string_view separator, NodeId right);
  void grow_root(std::string_view separator, NodeId right);
  void merge_upwards(const Path& path);
  bool merge_children(TreeNode& parent, uint16_t place);
  uint64_t check_node(NodeId id, TreeNode::Fences fences, uint8_t level) const;

  std::span<std::byte> memory_;
  TableId table_{};
  uint64_t nodes_used_ = 1;  // node 0 is none
  std::vector<NodeId> free_;
  NodeId root_ = kNoNode;
  uint64_t size_ = 0;
  // Where a key was looked for last. The steps of a change name the same key, and the leaf that
  // covers it is found without a search, if it still does.
  struct Recent {
    NodeId leaf = kNoNode;
    uint16_t index = 0;
  };
  mutable Recent recent_;
};

template <typename IsOwn>
bool OrderedIndex::all_changes_are(NodeId leaf, IsOwn&& is_own) const {
  const TreeNode& it = node(leaf);
  if (it.changing == 0) return true;
  for (uint16_t i = 0; i < it.count(); ++i) {
    const Entry entry = unpack(it.value(i));
    if (entry.in_change && !(entry.record && is_own(*entry.record))) return false;
  }
  return true;
}

template <typename OnLeaf, typename OnKey>
void OrderedIndex::walk(Range range, Direction direction, OnLeaf on_leaf, OnKey on_key) const {
  if (!range.to.empty() && range.from >= range.to) return;
  const bool forward = direction == Direction::kForward;
  NodeId id = forward ? leaf_of(range.from) : last_leaf_before(range.to);
  while (id != kNoNode) {
    const TreeNode& leaf = node(id);
    const NodeId next = forward ? leaf.next : leaf.previous;
    node(next).prefetch();
    if (!on_leaf(Leaf{id, leaf.load_version()})) return;
    const uint16_t first = leaf.low() < range.from ? leaf.find(range.from).index : 0;
    const bool ends_here = !range.to.empty() && (leaf.high().empty() || range.to < leaf.high());
    const uint16_t end = ends_here ? leaf.find(range.to).index : leaf.count();
    for (uint16_t n = 0; n < end - first; ++n) {
      const uint16_t i = static_cast<uint16_t>(forward ? first + n : end - 1 - n);
      if (!on_key(LeafKey{leaf, i}, unpack(leaf.value(i)))) return;
    }
    const bool last =
        forward ? leaf.high().empty() || range.is_behind(leaf.high()) : leaf.low() <= range.from;
    if (last) return;
    id = next;
  }
}

}  // namespace pmstore::internal
