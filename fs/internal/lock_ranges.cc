#include "fs/internal/lock_ranges.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/random.h"

namespace pmstore::fs::internal {
namespace {

// The end of a subtree that lies farthest, and the farthest one of another holder than that one's.
class Reach {
 public:
  void add(uint64_t end, const LockHolder& holder) {
    const bool same = first_ && first_->holder == holder;
    if (same) {
      first_->end = std::max(first_->end, end);
    } else if (!first_ || end > first_->end) {
      second_ = first_;
      first_ = End{end, holder};
    } else if (!second_ || end > second_->end) {
      second_ = End{end, holder};
    }
  }
  void add(const Reach& other) {
    if (other.first_) add(other.first_->end, other.first_->holder);
    if (other.second_) add(other.second_->end, other.second_->holder);
  }
  // Does a range of another holder than this reach the byte `start`?
  bool reaches(const LockHolder& than, uint64_t start) const {
    const std::optional<End>& of_another = first_ && first_->holder == than ? second_ : first_;
    return of_another && of_another->end >= start;
  }

 private:
  struct End {
    uint64_t end = 0;
    LockHolder holder;
  };
  std::optional<End> first_;
  std::optional<End> second_;
};

}  // namespace

struct LockRanges::Node {
  Node(const Range& of, uint64_t drawn) : range(of), priority(drawn) {}
  bool is_before(uint64_t start, const LockHolder& holder) const {
    return range.start != start ? range.start < start : range.holder < holder;
  }
  bool is(uint64_t start, const LockHolder& holder) const {
    return range.start == start && range.holder == holder;
  }
  void sum_up() {
    reach = {};
    reach.add(range.end, range.holder);
    if (left != nullptr) reach.add(left->reach);
    if (right != nullptr) reach.add(right->reach);
  }

  Range range;
  uint64_t priority;
  NodeRef left;
  NodeRef right;
  Reach reach;  // of the subtree
};

LockRanges::LockRanges(uint64_t& steps, uint64_t seed) : steps_(&steps), drawn_(seed) {}
LockRanges::~LockRanges() = default;

LockRanges::Split LockRanges::split(NodeRef node, uint64_t start, const LockHolder& holder,
                                    bool with_equal) {
  if (node == nullptr) return {};
  ++*steps_;
  const bool before = node->is_before(start, holder) || (with_equal && node->is(start, holder));
  NodeRef& inner = before ? node->right : node->left;
  Split parts = split(std::move(inner), start, holder, with_equal);
  inner = std::move(before ? parts.before : parts.rest);
  node->sum_up();
  (before ? parts.before : parts.rest) = std::move(node);
  return parts;
}

LockRanges::NodeRef LockRanges::join(NodeRef before, NodeRef behind) {
  if (before == nullptr) return behind;
  if (behind == nullptr) return before;
  ++*steps_;
  if (before->priority >= behind->priority) {
    before->right = join(std::move(before->right), std::move(behind));
    before->sum_up();
    return before;
  }
  behind->left = join(std::move(before), std::move(behind->left));
  behind->sum_up();
  return behind;
}

void LockRanges::add(const Range& range) {
  PMSTORE_CHECK(range.start <= range.end, "a range has a byte");
  Split parts = split(std::move(root_), range.start, range.holder, false);
  auto made = std::make_unique<Node>(range, base::mix64(++drawn_));
  made->sum_up();
  root_ = join(join(std::move(parts.before), std::move(made)), std::move(parts.rest));
}

void LockRanges::remove(uint64_t start, const LockHolder& holder) {
  Split parts = split(std::move(root_), start, holder, false);
  Split rest = split(std::move(parts.rest), start, holder, true);
  PMSTORE_CHECK(rest.before != nullptr && rest.before->is(start, holder) &&
                    rest.before->left == nullptr && rest.before->right == nullptr,
                "a range that is removed is there, once");
  root_ = join(std::move(parts.before), std::move(rest.rest));
}

// A subtree that reaches `start` and lies in front of a node that begins at or before `end` has
// one: so only one way down is taken.
const LockRanges::Node* LockRanges::find(const Node* node, const LockHolder& than, uint64_t start,
                                         uint64_t end) const {
  if (node == nullptr) return nullptr;
  ++*steps_;
  if (!node->reach.reaches(than, start)) return nullptr;
  if (const Node* const found = find(node->left.get(), than, start, end)) return found;
  if (node->range.start > end) return nullptr;
  if (node->range.end >= start && node->range.holder != than) return node;
  return find(node->right.get(), than, start, end);
}

std::optional<LockRanges::Range> LockRanges::find_beside(const LockHolder& than, uint64_t start,
                                                         uint64_t end) const {
  const Node* const found = find(root_.get(), than, start, end);
  return found == nullptr ? std::nullopt : std::optional(found->range);
}

void LockRanges::visit_all(const Node* node, const LockHolder& than, uint64_t start, uint64_t end,
                           const std::function<void(const Range&)>& visit) const {
  if (node == nullptr) return;
  ++*steps_;
  if (!node->reach.reaches(than, start)) return;
  visit_all(node->left.get(), than, start, end, visit);
  if (node->range.start > end) return;
  if (node->range.end >= start && node->range.holder != than) visit(node->range);
  visit_all(node->right.get(), than, start, end, visit);
}

void LockRanges::for_each_beside(const LockHolder& than, uint64_t start, uint64_t end,
                                 const std::function<void(const Range&)>& visit) const {
  visit_all(root_.get(), than, start, end, visit);
}

}  // namespace pmstore::fs::internal
