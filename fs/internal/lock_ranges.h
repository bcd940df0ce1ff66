// LockRanges: ranges of bytes with their holders, that may overlap: does a range of another holder
// have a byte of these?
//
// A treap by start. Each node knows of its subtree the end that lies farthest, and the farthest one
// of another holder than that one's: so a search leaves the ranges of one holder out without
// looking at them. Each call takes the logarithm of the number of ranges, expected;
// for_each_beside() as much more as it gives. Threads: one. Lifetimes: the counter of steps
// outlives it.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "fs/namespace.h"
#include "fs/types.h"

namespace pmstore::fs::internal {

// Of a lock: an owner that a client names.
struct LockHolder {
  OpenOwner client{};
  LockKind kind{};
  uint64_t owner = 0;
  auto operator<=>(const LockHolder&) const = default;
};

class LockRanges {
 public:
  struct Range {
    uint64_t start = 0;
    uint64_t end = 0;  // included
    LockHolder holder;
  };

  // `steps` counts the nodes that are looked at. `seed`: one that clients cannot guess, so that
  // none of them chooses locks that make the tree a list.
  LockRanges(uint64_t& steps, uint64_t seed);
  LockRanges(const LockRanges&) = delete;
  LockRanges& operator=(const LockRanges&) = delete;
  ~LockRanges();

  // Requires that the holder has no range there that begins at the same byte.
  void add(const Range& range);
  // Requires that it is there.
  void remove(uint64_t start, const LockHolder& holder);
  // The first range of a holder other than `than` that has a byte of [start, end].
  std::optional<Range> find_beside(const LockHolder& than, uint64_t start, uint64_t end) const;
  // All of them.
  void for_each_beside(const LockHolder& than, uint64_t start, uint64_t end,
                       const std::function<void(const Range&)>& visit) const;
  bool empty() const { return root_ == nullptr; }

 private:
  struct Node;
  using NodeRef = std::unique_ptr<Node>;
  struct Split {
    NodeRef before;
    NodeRef rest;
  };
  // By start, then holder: `before` has what is less than that.
  Split split(NodeRef node, uint64_t start, const LockHolder& holder, bool with_equal);
  NodeRef join(NodeRef before, NodeRef behind);
  const Node* find(const Node* node, const LockHolder& than, uint64_t start, uint64_t end) const;
  void visit_all(const Node* node, const LockHolder& than, uint64_t start, uint64_t end,
                 const std::function<void(const Range&)>& visit) const;

  uint64_t* steps_;
  uint64_t drawn_;  // priorities, from the seed on
  NodeRef root_;
};

}  // namespace pmstore::fs::internal
