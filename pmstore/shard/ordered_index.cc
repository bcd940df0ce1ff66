#include "pmstore/shard/ordered_index.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "pmstore/layout/bucket_layout.h"
#include "pmstore/shard/shared_pages.h"

namespace pmstore::internal {

namespace {

// A node with less is merged with a neighbour, when both together leave some room for more.
constexpr size_t kMergeBelow = TreeNode::kCapacity / 4;
constexpr size_t kMergedAtMost = TreeNode::kCapacity / 4 * 3;
constexpr uint8_t kFreeLevel = 0xff;

// A copy of a node's page, to rebuild the node from.
struct OldNode {
  explicit OldNode(const TreeNode& node) { std::memcpy(page, &node, kNodeBytes); }
  const TreeNode& operator*() const {
    return *std::launder(reinterpret_cast<const TreeNode*>(page));
  }
  const TreeNode* operator->() const { return &**this; }
  alignas(TreeNode) std::byte page[kNodeBytes];
};

// Where a full node is split: both sides get about the same number of bytes.
uint16_t middle_of(const TreeNode& node) {
  size_t all = 0;
  for (uint16_t i = 0; i < node.count(); ++i) all += node.entry_bytes(i);
  size_t bytes = 0;
  uint16_t i = 0;
  for (; i + 1 < node.count() && bytes < all / 2; ++i) bytes += node.entry_bytes(i);
  return std::max<uint16_t>(i, 1);
}

}  // namespace

Result<OrderedIndex> OrderedIndex::create(uint64_t max_bytes) {
  auto pages = map_pages((max_bytes / kNodeBytes + 2) * kNodeBytes);
  if (!pages) return pages.error();
  return OrderedIndex(*pages);
}

OrderedIndex::OrderedIndex(std::span<std::byte> memory) : memory_(memory) {
  root_ = take_node();
  node(root_).reset(0, {});
}

OrderedIndex::OrderedIndex(OrderedIndex&& other) noexcept
    : memory_(std::exchange(other.memory_, {})),
      table_(other.table_),
      nodes_used_(other.nodes_used_),
      free_(std::move(other.free_)),
      root_(other.root_),
      size_(other.size_) {}

OrderedIndex::~OrderedIndex() { unmap_pages(memory_); }

void OrderedIndex::begin_table(TableId table) {
  PMSTORE_CHECK(size_ == 0 && node(root_).level() == 0, "another table's keys would be found");
  table_ = table;
  TreeNode& root = node(root_);
  root.begin_change();
  root.reset(0, {});
  root.table = raw(table);
  root.settle();
}

void OrderedIndex::leave_table() {
  table_ = TableId{};
  for (NodeId id = 1; id < nodes_used_; ++id) {
    TreeNode& leaf = node(id);
    if (leaf.level() != 0) continue;
    leaf.begin_change();
    leaf.table = raw(table_);
    leaf.settle();
  }
}

void OrderedIndex::end_table() {
  PMSTORE_CHECK(size_ == 0, "a table's index goes after its keys");
  free_.clear();
  for (NodeId id = static_cast<NodeId>(nodes_used_ - 1); id != kNoNode; --id) {
    if (node(id).level() == 0) node(id).begin_change();
    free_node(id);
  }
  root_ = take_node();
  node(root_).begin_change();
  node(root_).reset(0, {});
}

std::span<std::byte> OrderedIndex::chunk_of(NodeId id) const {
  const size_t from = id / kChunkNodes * kChunkBytes;
  return memory_.subspan(from, std::min(kChunkBytes, memory_.size() - from));
}

// ---- entries ----

// The record as in a BucketEntry without its tag; the highest bit: the entry is in change.
uint64_t OrderedIndex::pack(Entry entry) {
  const uint64_t record =
      entry.record ? BucketEntry::make(0, entry.record->size_class, entry.record->slot).bits : 0;
  return (static_cast<uint64_t>(entry.in_change) << 63) | record;
}

OrderedIndex::Entry OrderedIndex::unpack(uint64_t value) {
  const BucketEntry record{value & ~(uint64_t{1} << 63)};
  Entry entry{std::nullopt, value >> 63 != 0};
  if (record.used()) entry.record = IndexEntry{record.slot(), record.size_class()};
  return entry;
}

OrderedIndex::Path OrderedIndex::path_to(std::string_view key) const {
  Path path;
  NodeId id = root_;
  while (node(id).level() > 0) {
    PMSTORE_CHECK(path.length < kMaxLevels, "a tree of this height fits no memory");
    const uint16_t child = node(id).child_place(key);
    path.steps[path.length++] = {id, child};
    id = node(id).child(child);
  }
  path.leaf = id;
  return path;
}

NodeId OrderedIndex::leaf_of(std::string_view key) const {
  if (is_leaf(recent_.leaf) && node(recent_.leaf).covers(key)) return recent_.leaf;
  return path_to(key).leaf;
}

NodeId OrderedIndex::last_leaf_before(std::string_view to) const {
  if (!to.empty()) {
    const NodeId leaf = leaf_of(to);
    return node(leaf).low() == to ? node(leaf).previous : leaf;
  }
  NodeId id = root_;
  while (node(id).level() > 0) id = node(id).child(node(id).count());
  return id;
}

std::optional<OrderedIndex::Entry> OrderedIndex::find(std::string_view key) const {
  // Other keys are looked up than the last one.
  const NodeId id = path_to(key).leaf;
  const TreeNode::Place place = node(id).find(key);
  recent_ = {id, place.index};
  if (!place.equal) return std::nullopt;
  return unpack(node(id).value(place.index));
}

TreeNode::Place OrderedIndex::place_in(NodeId leaf, std::string_view key) const {
  const bool again = recent_.leaf == leaf;
  const TreeNode::Place place = again ? node(leaf).find(key, recent_.index) : node(leaf).find(key);
  recent_ = {leaf, place.index};
  return place;
}

Result<NodeId> OrderedIndex::leaf_with_room(std::string_view key) {
  for (;;) {
    Path path = path_to(key);
    if (node(path.leaf).has_room(key)) return path.leaf;
    // Each level may be split, and the root get another one above it.
    if (!has_free_nodes(path.length + 2)) {
      return make_error(ErrorCode::kFull,
                        "the index of this table has no memory for another key; erase keys, or "
                        "create a larger pool");
    }
    split(path, key);
  }
}

Status OrderedIndex::begin_change(std::string_view key) {
  NodeId id = leaf_of(key);
  TreeNode::Place place = place_in(id, key);
  if (!place.equal && !node(id).has_room(key)) {
    PMSTORE_TRY(id, leaf_with_room(key));
    place = place_in(id, key);
  }
  TreeNode& leaf = node(id);
  leaf.begin_change();
  ++leaf.changing;
  if (!place.equal) {
    leaf.insert(place.index, key, pack({std::nullopt, true}));
    ++size_;
    return {};
  }
  const Entry entry = unpack(leaf.value(place.index));
  PMSTORE_CHECK(!entry.in_change, "whoever changes a key has its lock");
  leaf.set_value(place.index, pack({entry.record, true}));
  return {};
}

OrderedIndex::Found OrderedIndex::changing(std::string_view key) const {
  const NodeId id = leaf_of(key);
  TreeNode& leaf = node(id);
  const TreeNode::Place place = place_in(id, key);
  PMSTORE_CHECK(place.equal, "an entry stays until its change ends");
  const Entry entry = unpack(leaf.value(place.index));
  PMSTORE_CHECK(entry.in_change, "an entry changes between begin_change() and end_change()");
  return {leaf, place.index, entry};
}

void OrderedIndex::insert(std::string_view key, IndexEntry record) {
  const Found found = changing(key);
  found.leaf.set_value(found.index, pack({record, true}));
}

void OrderedIndex::remove(std::string_view key) {
  const Found found = changing(key);
  PMSTORE_CHECK(found.entry.record, "what is removed is there");
  found.leaf.set_value(found.index, pack({std::nullopt, true}));
}

void OrderedIndex::end_change(std::string_view key) {
  const Found found = changing(key);
  TreeNode& leaf = found.leaf;
  --leaf.changing;
  if (found.entry.record) {
    leaf.set_value(found.index, pack({found.entry.record, false}));
    leaf.settle();
    return;
  }
  leaf.erase(found.index);
  --size_;
  leaf.settle();
  if (leaf.used_bytes() < kMergeBelow) merge_upwards(path_to(key));
}

// ---- nodes ----

bool OrderedIndex::has_free_nodes(size_t count) const {
  return free_.size() + memory_.size() / kNodeBytes - nodes_used_ >= count;
}

NodeId OrderedIndex::take_node() {
  if (!free_.empty()) {
    const NodeId id = free_.back();
    free_.pop_back();
    node(id).table = raw(table_);
    return id;
  }
  PMSTORE_CHECK(has_free_nodes(1), "who takes a node has looked whether there is one");
  const auto id = static_cast<NodeId>(nodes_used_++);
  if (nodes_used_ % kChunkNodes == 0) join_pages(chunk_of(id));
  node(id).table = raw(table_);
  return id;
}

void OrderedIndex::free_node(NodeId id) {
  node(id).reset(kFreeLevel, {});
  node(id).settle();
  free_.push_back(id);
}

// ---- splitting ----

void OrderedIndex::split(Path& path, std::string_view key) {
  TreeNode& left = node(path.leaf);
  const OldNode old(left);
  const NodeId right_id = take_node();
  TreeNode& right = node(right_id);
  TreeNode::KeyRoom room, next_room;
  const auto separator_at = [&](uint16_t middle) {
    return separator_of(old->key(static_cast<uint16_t>(middle - 1), room),
                        middle == old->count() ? key : old->key(middle, next_room));
  };
  uint16_t middle = middle_of(*old);
  // Keys that come in ascending order, of a table or of a part of it, leave full leaves behind.
  if (old->find(key).index == old->count()) {
    middle = old->count();
    while (old->bytes_between(0, middle, {old->low(), separator_at(middle)}) >
           TreeNode::kCapacity) {
      --middle;
    }
  }
  const std::string_view separator = separator_at(middle);
  left.begin_change();
  right.begin_change();
  left.assign(*old, 0, middle, {old->low(), separator});
  right.assign(*old, middle, old->count(), {separator, old->high()});
  left.previous = old->previous;
  left.next = right_id;
  right.previous = path.leaf;
  right.next = old->next;
  if (right.next != kNoNode) node(right.next).previous = right_id;
  for (TreeNode* const leaf : {&left, &right}) {
    for (uint16_t i = 0; i < leaf->count(); ++i) {
      leaf->changing += unpack(leaf->value(i)).in_change;
    }
    leaf->settle();
  }
  add_child(path, path.length, separator, right_id);
}

// `depth`: of the child in the path, whose new right neighbour is `right`.
void OrderedIndex::add_child(Path& path, size_t depth, std::string_view separator, NodeId right) {
  if (depth == 0) return grow_root(separator, right);
  NodeId parent = path.steps[depth - 1].node;
  if (!node(parent).has_room(separator)) parent = split_inner(path, depth - 1, separator);
  const uint16_t place = node(parent).find(separator).index;
  node(parent).insert(place, separator, right);
}

// Gives the half that covers `separator`.
NodeId OrderedIndex::split_inner(Path& path, size_t depth, std::string_view separator) {
  const NodeId left_id = path.steps[depth].node;
  TreeNode& left = node(left_id);
  const OldNode old(left);
  const NodeId right_id = take_node();
  TreeNode& right = node(right_id);
  const uint16_t middle = middle_of(*old);
  TreeNode::KeyRoom room;
  const std::string_view above = old->key(middle, room);
  left.assign(*old, 0, middle, {old->low(), above});
  left.first_child = old->first_child;
  right.assign(*old, static_cast<uint16_t>(middle + 1), old->count(), {above, old->high()});
  right.first_child = old->child(static_cast<uint16_t>(middle + 1));
  add_child(path, depth, above, right_id);
  return separator < above ? left_id : right_id;
}

void OrderedIndex::grow_root(std::string_view separator, NodeId right) {
  const NodeId old = std::exchange(root_, take_node());
  node(root_).reset(static_cast<uint8_t>(node(old).level() + 1), {});
  node(root_).first_child = old;
  node(root_).insert(0, separator, right);
}

// ---- merging ----

void OrderedIndex::merge_upwards(const Path& path) {
  for (size_t depth = path.length; depth > 0; --depth) {
    TreeNode& parent = node(path.steps[depth - 1].node);
    const uint16_t child = path.steps[depth - 1].child;
    const bool merged = (child > 0 && merge_children(parent, static_cast<uint16_t>(child - 1))) ||
                        (child < parent.count() && merge_children(parent, child));
    if (!merged || parent.used_bytes() >= kMergeBelow) break;
  }
  while (node(root_).level() > 0 && node(root_).count() == 0) {
    free_node(std::exchange(root_, node(root_).first_child));
  }
}

// Merges the children at `place` and behind it, if both fit into one node with room to spare.
bool OrderedIndex::merge_children(TreeNode& parent, uint16_t place) {
  const NodeId left_id = parent.child(place);
  const NodeId right_id = parent.child(static_cast<uint16_t>(place + 1));
  TreeNode& left = node(left_id);
  TreeNode& right = node(right_id);
  const OldNode old(left);
  TreeNode::KeyRoom room;
  const std::string_view separator = parent.key(place, room);
  const TreeNode::Fences fences{old->low(), right.high()};
  const bool inner = left.level() > 0;
  const size_t needed = left.bytes_between(0, left.count(), fences) +
                        right.bytes_between(0, right.count(), fences) +
                        (inner ? sizeof(TreeNode::Slot) + separator.size() : 0);
  if (needed > kMergedAtMost) return false;
  if (!inner) {
    left.begin_change();
    right.begin_change();
  }
  left.assign(*old, 0, old->count(), fences);
  left.first_child = old->first_child;
  if (inner) left.insert(left.count(), separator, right.first_child);
  left.append(right, 0, right.count());
  left.previous = old->previous;
  left.next = right.next;
  if (left.next != kNoNode) node(left.next).previous = left_id;
  left.changing = static_cast<uint16_t>(old->changing + right.changing);
  if (!inner) left.settle();
  parent.erase(place);
  free_node(right_id);
  return true;
}

// ---- checkpoint ----

namespace {

// A section of a checkpoint has so many nodes.
constexpr uint64_t kNodesPerPart = 1024;

struct SavedTree {
  uint64_t nodes;  // with node 0
  uint64_t size;
  uint32_t root;
  uint32_t free;  // so many nodes are free; their numbers follow
};

}  // namespace

std::span<std::byte> OrderedIndex::part_of_nodes(uint32_t part, uint64_t nodes) const {
  const uint64_t first = part * kNodesPerPart;
  return memory_.subspan(first * kNodeBytes, std::min(kNodesPerPart, nodes - first) * kNodeBytes);
}

// The table's number and the part's together.
uint32_t OrderedIndex::part_number(uint64_t part) const {
  PMSTORE_CHECK(part <= UINT16_MAX, "256 GiB of nodes have a number");
  return static_cast<uint32_t>(uint64_t{raw(table_)} << 16 | part);
}

Status OrderedIndex::save(CheckpointWriter& writer) const {
  for (NodeId id = 1; id < nodes_used_; ++id) {
    if (node(id).level() != 0 || node(id).changing == 0) continue;
    return make_error(ErrorCode::kConflict, "a key of an ordered table is in change");
  }
  writer.begin_section("tree", part_number(0));
  writer.put(SavedTree{nodes_used_, size_, root_, static_cast<uint32_t>(free_.size())});
  writer.put(free_.data(), free_.size() * sizeof(NodeId));
  for (uint32_t part = 0; part * kNodesPerPart < nodes_used_; ++part) {
    writer.begin_section("nodes", part_number(part));
    const auto nodes = part_of_nodes(part, nodes_used_);
    writer.put(nodes.data(), nodes.size());
  }
  return {};
}

Status OrderedIndex::load(CheckpointLoad& load) {
  PMSTORE_CHECK(size_ == 0, "an index is loaded once");
  SavedTree saved{};
  auto section = load.reader().section("tree", part_number(0));
  const bool whole = section && section->read(saved) && saved.nodes > saved.root &&
                     saved.nodes <= memory_.size() / kNodeBytes && saved.root != kNoNode &&
                     section->left() == saved.free * sizeof(NodeId);
  std::vector<NodeId> free(whole ? saved.free : 0);
  if (!whole || !section->read(free.data(), free.size() * sizeof(NodeId))) {
    return make_error(ErrorCode::kDamaged, "its index of an ordered table is not whole");
  }
  join_pages(memory_.first(saved.nodes * kNodeBytes));
  for (uint32_t part = 0; part * kNodesPerPart < saved.nodes; ++part) {
    load.add([this, &load, part, nodes = saved.nodes] {
      auto found = load.reader().section("nodes", part_number(part));
      const auto to = part_of_nodes(part, nodes);
      return found && found->read(to.data(), to.size()) && found->ended_well();
    });
  }
  load.add_step([this, saved, free = std::move(free)] {
    nodes_used_ = saved.nodes;
    size_ = saved.size;
    root_ = saved.root;
    free_ = free;
    recent_ = {};
    return true;
  });
  return {};
}

// ---- checks ----

uint64_t OrderedIndex::check_node(NodeId id, TreeNode::Fences fences, uint8_t level) const {
  const TreeNode& it = node(id);
  PMSTORE_CHECK(it.level() == level, "all leaves are equally deep");
  PMSTORE_CHECK(it.low() == fences.low && it.high() == fences.high, "fences of neighbours meet");
  TreeNode::KeyRoom room, next_room;
  uint16_t changing = 0;
  uint64_t keys = 0;
  for (uint16_t i = 0; i < it.count(); ++i) {
    const std::string_view key = it.key(i, room);
    PMSTORE_CHECK(it.covers(key), "a key is in the node that covers it");
    if (i + 1 < it.count()) {
      PMSTORE_CHECK(key < it.key(static_cast<uint16_t>(i + 1), next_room), "keys are in order");
    }
    if (level == 0) changing += unpack(it.value(i)).in_change;
  }
  if (level == 0) {
    PMSTORE_CHECK(it.changing == changing, "each entry in change is counted");
    PMSTORE_CHECK(it.load_version() % 2 == (changing > 0 ? 1 : 0), "odd while it changes");
    if (!it.high().empty()) {
      PMSTORE_CHECK(node(it.next).previous == id, "leaves are linked both ways");
      PMSTORE_CHECK(node(it.next).low() == it.high(), "links lead to the next leaf");
    } else {
      PMSTORE_CHECK(it.next == kNoNode, "the last leaf is the last one");
    }
    return it.count();
  }
  for (uint16_t i = 0; i <= it.count(); ++i) {
    const std::string_view low = i == 0 ? it.low() : it.key(static_cast<uint16_t>(i - 1), room);
    const std::string_view high = i == it.count() ? it.high() : it.key(i, next_room);
    keys += check_node(it.child(i), {low, high}, static_cast<uint8_t>(level - 1));
  }
  return keys;
}

void OrderedIndex::check_all() const {
  PMSTORE_CHECK(check_node(root_, {}, node(root_).level()) == size_, "each key is counted");
}

}  // namespace pmstore::internal
