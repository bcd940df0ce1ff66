#include "tests/scenario/store/history_order.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "base/random.h"

namespace pmstore::scenario {
namespace {

using Node = HistoryFacts::Node;
using Access = HistoryFacts::Access;

class Search {
 public:
  explicit Search(const HistoryFacts& facts);
  HistoryOrder run();

 private:
  // A place of the order, and what may be tried at it.
  struct Place {
    std::vector<uint32_t> choices;
    size_t next = 0;
    uint64_t state = 0;                 // before the choice
    std::vector<uint32_t> overwritten;  // by the choice: versions, as its writes are ordered
  };

  bool fits(const Node& node) const;
  std::vector<uint32_t> choices() const;
  void enter();
  void place(uint32_t node, Place& at);
  void take_back(uint32_t node, const Place& at);
  void set_value(uint32_t key, uint32_t version);
  void count_reads(const Node& node, int by);
  void note_obstacle();
  std::string why_not(const Node& node) const;

  const HistoryFacts& facts_;
  std::vector<uint32_t> value_;  // key -> version
  std::vector<int> still_read_;  // version -> certain nodes that are left and read it
  std::vector<uint32_t>
      following_;  // node + 1 -> the next one that is left, by begin; 0: the first
  std::vector<uint32_t> preceding_;
  size_t certain_left_ = 0;
  uint64_t state_ = 0;
  std::unordered_set<uint64_t> failed_;
  std::vector<Place> places_;
  std::vector<uint32_t> order_;
  size_t fewest_left_ = SIZE_MAX;
  std::string obstacle_;
};

constexpr uint32_t kEnd = UINT32_MAX;

Search::Search(const HistoryFacts& facts)
    : facts_(facts),
      value_(facts.keys.size(), HistoryFacts::kAbsent),
      still_read_(facts.writer_of.size(), 0),
      following_(facts.nodes.size() + 1, kEnd),
      preceding_(facts.nodes.size() + 1, kEnd) {
  std::vector<uint32_t> by_begin;
  for (uint32_t i = 0; i < facts.nodes.size(); ++i) {
    if (facts.nodes[i].in_play) by_begin.push_back(i);
  }
  std::stable_sort(by_begin.begin(), by_begin.end(), [&](uint32_t a, uint32_t b) {
    return facts.nodes[a].began < facts.nodes[b].began;
  });
  uint32_t before = 0;
  for (const uint32_t node : by_begin) {
    following_[before] = node;
    preceding_[node + 1] = before;
    before = node + 1;
  }
  for (const Node& node : facts.nodes) {
    count_reads(node, 1);
    certain_left_ += node.certain;
  }
}

void Search::count_reads(const Node& node, int by) {
  if (!node.certain) return;
  for (const Access& read : node.reads) still_read_[read.version] += by;
}

bool Search::fits(const Node& node) const {
  for (const Access& read : node.reads) {
    if (value_[read.key] != read.version) return false;
  }
  for (const Access& write : node.writes) {
    const uint32_t replaced = value_[write.key];
    if (replaced == HistoryFacts::kAbsent) continue;  // what is absent may be absent again
    int others = still_read_[replaced];
    for (const Access& read : node.reads) others -= node.certain && read.version == replaced;
    if (others > 0) return false;
  }
  return true;
}

// Those that fit; only one where no other has to be tried.
std::vector<uint32_t> Search::choices() const {
  std::vector<uint32_t> some;
  uint64_t first_end = UINT64_MAX;
  for (uint32_t i = following_[0]; i != kEnd; i = following_[i + 1]) {
    const Node& node = facts_.nodes[i];
    if (node.began > first_end) break;
    first_end = std::min(first_end, node.ended);
    if (!fits(node)) continue;
    if (node.writes.empty()) return {i};
    some.push_back(i);
  }
  // Most likely in the order of their ends, and that which need not have happened has not.
  std::stable_sort(some.begin(), some.end(), [&](uint32_t a, uint32_t b) {
    const Node& first = facts_.nodes[a];
    const Node& second = facts_.nodes[b];
    return std::pair(!first.certain, first.ended) < std::pair(!second.certain, second.ended);
  });
  return some;
}

void Search::set_value(uint32_t key, uint32_t version) {
  const auto part = [key](uint32_t of) { return base::mix64(uint64_t{key} << 32 | of); };
  state_ ^= part(value_[key]) ^ part(version);
  value_[key] = version;
}

void Search::place(uint32_t index, Place& at) {
  const Node& node = facts_.nodes[index];
  const uint32_t before = preceding_[index + 1];
  const uint32_t behind = following_[index + 1];
  following_[before] = behind;
  if (behind != kEnd) preceding_[behind + 1] = before;
  count_reads(node, -1);
  certain_left_ -= node.certain;
  at.overwritten.clear();
  for (const Access& write : node.writes) {
    at.overwritten.push_back(value_[write.key]);
    set_value(write.key, write.version);
  }
  state_ ^= base::mix64(~uint64_t{index});
  order_.push_back(index);
}

void Search::take_back(uint32_t index, const Place& at) {
  const Node& node = facts_.nodes[index];
  for (size_t i = 0; i < node.writes.size(); ++i) {
    set_value(node.writes[i].key, at.overwritten[i]);
  }
  const uint32_t behind = following_[index + 1];
  following_[preceding_[index + 1]] = index;
  if (behind != kEnd) preceding_[behind + 1] = index + 1;
  count_reads(node, 1);
  certain_left_ += node.certain;
  state_ ^= base::mix64(~uint64_t{index});
  order_.pop_back();
  PMSTORE_CHECK(state_ == at.state, "what was placed is taken back as a whole");
}

std::string Search::why_not(const Node& node) const {
  const auto whose = [&](uint32_t version) {
    if (version == HistoryFacts::kAbsent) return std::string("absent");
    return "of " + std::to_string(facts_.nodes[facts_.writer_of[version]].name);
  };
  for (const Access& read : node.reads) {
    if (value_[read.key] == read.version) continue;
    return "it " + std::string(read.scanned ? "scanned " : "read ") + facts_.keys[read.key] +
           " as " + whose(read.version) + ", which was " + whose(value_[read.key]);
  }
  for (const Access& write : node.writes) {
    const uint32_t replaced = value_[write.key];
    if (replaced == HistoryFacts::kAbsent || still_read_[replaced] == 0) continue;
    return "it writes " + facts_.keys[write.key] + ", which others still read as " +
           whose(replaced);
  }
  return "what follows it fits nowhere";
}

void Search::note_obstacle() {
  if (certain_left_ >= fewest_left_) return;
  fewest_left_ = certain_left_;
  uint32_t blocks = kEnd;
  for (uint32_t i = following_[0]; i != kEnd; i = following_[i + 1]) {
    const bool sooner = blocks == kEnd || facts_.nodes[i].ended < facts_.nodes[blocks].ended;
    if (facts_.nodes[i].certain && sooner) blocks = i;
  }
  PMSTORE_CHECK(blocks != kEnd, "an obstacle keeps a transaction from its place");
  const Node& node = facts_.nodes[blocks];
  obstacle_ = "the longest order that was found has " + std::to_string(order_.size()) +
              " transactions; " + std::to_string(node.name) + " had to be among the next, but " +
              why_not(node);
}

void Search::enter() {
  if (certain_left_ == 0) return;
  Place at;
  at.state = state_;
  if (!failed_.contains(state_)) at.choices = choices();
  if (at.choices.empty()) note_obstacle();
  places_.push_back(std::move(at));
}

HistoryOrder Search::run() {
  HistoryOrder result;
  size_t steps_left = 500'000 + 1'000 * facts_.nodes.size();
  enter();
  while (certain_left_ > 0) {
    Place& at = places_.back();
    if (at.next > 0) take_back(at.choices[at.next - 1], at);
    if (at.next == at.choices.size()) {
      failed_.insert(at.state);
      places_.pop_back();
      if (places_.empty()) break;
      continue;
    }
    if (--steps_left == 0) {
      result.gave_up = true;
      break;
    }
    place(at.choices[at.next++], at);
    enter();
  }
  if (certain_left_ == 0) result.nodes = std::move(order_);
  result.obstacle = std::move(obstacle_);
  return result;
}

}  // namespace

HistoryOrder find_order(const HistoryFacts& facts) { return Search(facts).run(); }

}  // namespace pmstore::scenario
