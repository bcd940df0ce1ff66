// TreeNode: one node of an OrderedIndex: keys in order, each with a value of 8 bytes.
//
// A node is a page of kNodeBytes. Slots of 16 bytes grow from the front, in the order of their
// keys; the keys lie in a heap that grows from the end. All keys of a node lie between two fences
// (low is included, high is not), so they share the fences' common prefix, which is stored once. A
// slot has the first four bytes behind the prefix, so that most steps of a search compare one
// number and touch no key. (Slotted pages with fences and heads: Graefe, "Modern B-Tree
// Techniques", 2011.)
//
// A leaf's values are entries of records. An inner node has a child before its first key
// (first_child), and one behind each key, whose keys are not smaller than that key.
//
// `version` only grows, whatever the page is used for. It is even while a leaf is stable, and odd
// while it changes (begin_change(), settle()); `changing` counts the entries whose keys are being
// inserted or removed by transactions that are not applied yet. The end of each change makes it
// grow, also while others go on: so an odd version tells what was there when they began.
// Clients READ leaves one-sided. So every store into a page is atomic (SharedField,
// base/atomic_copy.h), a page is a leaf of a table (`level` 0) only as long as its version does not
// say otherwise, and what a client has READ is of no use unless the version was the same even
// number before and after. A copy that a client has made need not be whole: see well_formed().
//
// Threads: the server's. Plain data in zeroed memory; never copied but by assign().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "pmstore/types.h"

namespace pmstore::internal {

using NodeId = uint32_t;
inline constexpr NodeId kNoNode = 0;
inline constexpr size_t kNodeBytes = 4096;

// A field that one thread writes while others read it.
template <typename T>
class SharedField {
 public:
  operator T() const { return value_; }
  SharedField& operator=(T value) {
    __atomic_store_n(&value_, value, __ATOMIC_RELAXED);
    return *this;
  }
  SharedField& operator=(const SharedField& other) { return *this = other.value_; }
  SharedField& operator+=(T more) { return *this = static_cast<T>(value_ + more); }
  SharedField& operator++() { return *this += 1; }
  SharedField& operator--() { return *this = static_cast<T>(value_ - 1); }

 private:
  T value_;
};

class TreeNode {
 public:
  struct Slot {
    uint64_t value;
    uint32_t head;  // the first bytes of the suffix as a number, first byte first
    uint16_t at;    // of the suffix in the page
    uint16_t bytes;
  };
  static_assert(sizeof(Slot) == 16);
  // Room for a whole key.
  using KeyRoom = std::array<char, kMaxKeyBytes>;
  struct Fences {
    std::string_view low;   // empty: before all keys
    std::string_view high;  // empty: behind all keys
  };
  struct Place {
    uint16_t index;  // of the first key that is not smaller
    bool equal;
  };

  // Empties the page and makes it a node of this level (0: leaf). Keeps its version.
  void reset(uint8_t level, Fences fences);
  // Becomes the slots [begin, end) of `from`, another page, between these fences.
  void assign(const TreeNode& from, uint16_t begin, uint16_t end, Fences fences);
  // Adds the slots of `from`, whose keys follow those here. CHECK: there is room.
  void append(const TreeNode& from, uint16_t begin, uint16_t end);

  uint16_t count() const { return count_; }
  uint8_t level() const { return level_; }
  std::string_view low() const { return at(low_at_, low_bytes_); }
  std::string_view high() const { return at(high_at_, high_bytes_); }
  bool covers(std::string_view key) const {
    return key >= low() && (high_bytes_ == 0 || key < high());
  }
  // `key` must be covered.
  Place find(std::string_view key) const;
  // The same, looked for at `guess` first.
  Place find(std::string_view key, uint16_t guess) const;
  // Where the child for `key` is: count of the keys that are not greater.
  uint16_t child_place(std::string_view key) const {
    const Place place = find(key);
    return place.equal ? place.index + 1 : place.index;
  }
  // The i-th child, 0 to count().
  NodeId child(uint16_t i) const {
    return i == 0 ? first_child : static_cast<NodeId>(slots()[i - 1].value);
  }
  uint64_t value(uint16_t i) const { return slots()[i].value; }
  void set_value(uint16_t i, uint64_t value) {
    __atomic_store_n(&slots()[i].value, value, __ATOMIC_RELAXED);
  }
  // Asks for the memory that reading the first keys takes; the processor sees the others coming.
  // Inline, because g++ 12 takes a call of a function that only prefetches for one without effect.
  [[gnu::always_inline]] void prefetch() const {
    __builtin_prefetch(this);
    __builtin_prefetch(page_);
    __builtin_prefetch(page_ + kHeaderBytes);
  }
  // The whole key, in `room`.
  std::string_view key(uint16_t i, KeyRoom& room) const;

  // Bytes that slots, fences and keys need; a page holds kCapacity of them.
  static constexpr size_t kHeaderBytes = 64;
  static constexpr size_t kCapacity = kNodeBytes - kHeaderBytes;
  size_t used_bytes() const;
  bool has_room(std::string_view key) const {
    return used_bytes() + sizeof(Slot) + key.size() - prefix_bytes_ <= kCapacity;
  }
  // What slot and heap have of the i-th key, without what it has in common with the fences.
  size_t entry_bytes(uint16_t i) const { return sizeof(Slot) + slots()[i].bytes; }
  // What [begin, end) would take with these fences.
  size_t bytes_between(uint16_t begin, uint16_t end, Fences fences) const;
  // CHECK: has_room(), and `key` is covered. `index` is find(key).index.
  void insert(uint16_t index, std::string_view key, uint64_t value);
  void erase(uint16_t index);

  // Of a copy from another machine: what the other functions read lies in the page.
  bool well_formed() const;

  uint64_t load_version() const { return __atomic_load_n(&version_, __ATOMIC_ACQUIRE); }
  // From here to settle() the leaf's contents may change.
  void begin_change() {
    if (version_ % 2 == 0) __atomic_store_n(&version_, version_ + 1, __ATOMIC_SEQ_CST);
  }
  void settle() {
    if (version_ % 2 == 0) return;
    const uint64_t more = changing == 0 ? 1 : 2;
    __atomic_store_n(&version_, version_ + more, __ATOMIC_RELEASE);
  }

 private:
  uint64_t version_;

 public:
  SharedField<NodeId> next, previous;  // leaves, in the order of keys
  SharedField<NodeId> first_child;     // inner nodes
  SharedField<uint16_t> changing;
  SharedField<uint16_t> table;  // whose node it is: reset() keeps it

 private:
  std::string_view at(uint16_t place, uint16_t bytes) const {
    return {reinterpret_cast<const char*>(this) + place, bytes};
  }
  Slot* slots() { return reinterpret_cast<Slot*>(page_); }
  const Slot* slots() const { return reinterpret_cast<const Slot*>(page_); }
  std::string_view suffix(uint16_t i) const { return at(slots()[i].at, slots()[i].bytes); }
  uint16_t store(std::string_view bytes);
  void compact();

  SharedField<uint16_t> count_;
  SharedField<uint16_t> heap_begin_;
  SharedField<uint16_t> heap_dead_;  // bytes of keys that were erased
  SharedField<uint16_t> prefix_bytes_;
  SharedField<uint16_t> low_at_, low_bytes_, high_at_, high_bytes_;
  SharedField<uint8_t> level_;
  alignas(kHeaderBytes) std::byte page_[kCapacity];
};
static_assert(sizeof(TreeNode) == kNodeBytes);
// A split of a node with the longest fences and keys leaves at least two on each side.
static_assert(TreeNode::kCapacity >=
              2 * kMaxKeyBytes + 4 * (sizeof(TreeNode::Slot) + kMaxKeyBytes));

size_t common_prefix(std::string_view a, std::string_view b);
// The shortest key that is greater than `left` and not greater than `right`. CHECK: left < right.
std::string_view separator_of(std::string_view left, std::string_view right);

}  // namespace pmstore::internal
