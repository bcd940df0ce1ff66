#include "tests/scenario/store/history_cycle.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

namespace pmstore::scenario {
namespace {

using Node = HistoryFacts::Node;
using Access = HistoryFacts::Access;

// Memory grows with the square.
constexpr size_t kMostNodes = 8'192;
constexpr uint32_t kNone = UINT32_MAX;

// Why one transaction is before another.
enum class Why : uint8_t {
  kRead,         // the other one read what it wrote
  kErased,       // the other one saw absent what it erased
  kOverwritten,  // the other one changed what it had read
  kWrites,       // both wrote the key, and what was read tells in which order
  kTime,         // it had ended when the other began
};
struct Edge {
  uint32_t to;
  Why why;
  uint32_t key;
  bool scanned;
};

class Graph {
 public:
  explicit Graph(const HistoryFacts& facts);
  std::optional<std::string> explain();

 private:
  struct Writer {
    uint32_t node;
    uint32_t version;
  };
  struct Reader {
    uint32_t node;
    uint32_t version;
    bool scanned;
  };

  bool add(uint32_t from, Edge edge);
  void add_times();
  // False: there is a cycle.
  bool find_reachable();
  bool reaches(uint32_t from, uint32_t to) const {
    return from == kNone || (reachable_[from * words_ + to / 64] >> (to % 64) & 1) != 0;
  }
  // Whether something was concluded.
  bool conclude();
  bool conclude_of(uint32_t key, const Reader& reader);
  // The node that wrote what the reader saw; kNone: none did, from the start. nullopt: not known.
  std::optional<uint32_t> source(uint32_t key, const Reader& reader) const;
  std::vector<std::pair<uint32_t, Edge>> shortest_cycle() const;
  std::vector<std::pair<uint32_t, Edge>> way(uint32_t from, uint32_t to) const;
  std::string words(uint32_t from, const Edge& edge) const;
  std::string name(uint32_t node) const { return std::to_string(facts_.nodes[node].name); }

  const HistoryFacts& facts_;
  const size_t words_;
  std::vector<std::vector<Edge>> edges_;
  std::set<std::pair<uint32_t, uint32_t>> joined_;
  std::vector<std::vector<Writer>> writers_;  // of a key
  std::vector<std::vector<Reader>> readers_;
  std::vector<uint64_t> reachable_;  // a row of bits for each node
};

Graph::Graph(const HistoryFacts& facts)
    : facts_(facts),
      words_((facts.nodes.size() + 63) / 64),
      edges_(facts.nodes.size()),
      writers_(facts.keys.size()),
      readers_(facts.keys.size()) {
  for (uint32_t i = 0; i < facts.nodes.size(); ++i) {
    const Node& node = facts.nodes[i];
    if (!node.in_play) continue;
    for (const Access& write : node.writes) writers_[write.key].push_back({i, write.version});
    if (!node.certain) continue;
    for (const Access& read : node.reads) {
      readers_[read.key].push_back({i, read.version, read.scanned});
      if (read.version == HistoryFacts::kAbsent) continue;
      add(facts.writer_of[read.version], {i, Why::kRead, read.key, read.scanned});
    }
  }
  add_times();
}

bool Graph::add(uint32_t from, Edge edge) {
  if (from == edge.to || !joined_.emplace(from, edge.to).second) return false;
  edges_[from].push_back(edge);
  return true;
}

// With few edges: each is before those that began later, up to the first one of these to end.
void Graph::add_times() {
  std::vector<uint32_t> by_begin;
  for (uint32_t i = 0; i < facts_.nodes.size(); ++i) {
    if (facts_.nodes[i].in_play) by_begin.push_back(i);
  }
  std::sort(by_begin.begin(), by_begin.end(),
            [&](uint32_t a, uint32_t b) { return facts_.nodes[a].began < facts_.nodes[b].began; });
  for (const uint32_t i : by_begin) {
    const uint64_t ended = facts_.nodes[i].ended;
    const auto later = std::partition_point(by_begin.begin(), by_begin.end(), [&](uint32_t other) {
      return facts_.nodes[other].began <= ended;
    });
    uint64_t first_end = UINT64_MAX;
    for (auto at = later; at != by_begin.end(); ++at) {
      if (facts_.nodes[*at].began > first_end) break;
      add(i, {*at, Why::kTime, 0, false});
      first_end = std::min(first_end, facts_.nodes[*at].ended);
    }
  }
}

bool Graph::find_reachable() {
  // From those without a successor on, backwards.
  std::vector<std::vector<uint32_t>> before(edges_.size());
  std::vector<size_t> left(edges_.size());
  std::vector<uint32_t> ready;
  for (uint32_t i = 0; i < edges_.size(); ++i) {
    for (const Edge& edge : edges_[i]) before[edge.to].push_back(i);
    left[i] = edges_[i].size();
    if (left[i] == 0) ready.push_back(i);
  }
  reachable_.assign(edges_.size() * words_, 0);
  size_t done = 0;
  for (; !ready.empty(); ++done) {
    const uint32_t node = ready.back();
    ready.pop_back();
    uint64_t* const row = &reachable_[node * words_];
    for (const Edge& edge : edges_[node]) {
      row[edge.to / 64] |= uint64_t{1} << (edge.to % 64);
      for (size_t word = 0; word < words_; ++word) row[word] |= reachable_[edge.to * words_ + word];
    }
    for (const uint32_t other : before[node]) {
      if (--left[other] == 0) ready.push_back(other);
    }
  }
  return done == edges_.size();
}

std::optional<uint32_t> Graph::source(uint32_t key, const Reader& reader) const {
  if (reader.version != HistoryFacts::kAbsent) return facts_.writer_of[reader.version];
  // Who made it absent: nobody, or one of those that erased it and are not later, without a put
  // in between.
  std::vector<uint32_t> possible;
  const auto put_between = [&](uint32_t eraser) {
    return std::any_of(writers_[key].begin(), writers_[key].end(), [&](const Writer& put) {
      return put.version != HistoryFacts::kAbsent && put.node != reader.node &&
             reaches(eraser, put.node) && reaches(put.node, reader.node);
    });
  };
  if (!put_between(kNone)) possible.push_back(kNone);
  for (const Writer& eraser : writers_[key]) {
    if (eraser.version != HistoryFacts::kAbsent || eraser.node == reader.node) continue;
    if (reaches(reader.node, eraser.node) || put_between(eraser.node)) continue;
    possible.push_back(eraser.node);
  }
  if (possible.empty()) return kNone;  // a put is before the reader, so a cycle follows
  if (possible.size() > 1) return std::nullopt;
  return possible.front();
}

bool Graph::conclude_of(uint32_t key, const Reader& reader) {
  const auto from = source(key, reader);
  if (!from) return false;
  bool news = false;
  if (*from != kNone && reader.version == HistoryFacts::kAbsent) {
    news |= add(*from, {reader.node, Why::kErased, key, reader.scanned});
  }
  for (const Writer& other : writers_[key]) {
    if (other.node == *from || other.node == reader.node) continue;
    if (reaches(*from, other.node) && (*from != kNone || other.version != HistoryFacts::kAbsent)) {
      news |= add(reader.node, {other.node, Why::kOverwritten, key, reader.scanned});
    } else if (*from != kNone && reaches(other.node, reader.node)) {
      news |= add(other.node, {*from, Why::kWrites, key, false});
    }
  }
  return news;
}

bool Graph::conclude() {
  bool news = false;
  for (uint32_t key = 0; key < readers_.size(); ++key) {
    for (const Reader& reader : readers_[key]) news |= conclude_of(key, reader);
  }
  return news;
}

// Breadth first; without `from` itself, with `to`.
std::vector<std::pair<uint32_t, Edge>> Graph::way(uint32_t from, uint32_t to) const {
  std::vector<std::pair<uint32_t, const Edge*>> came(edges_.size(), {kNone, nullptr});
  std::vector<uint32_t> queue = {from};
  for (size_t at = 0; at < queue.size(); ++at) {
    for (const Edge& edge : edges_[queue[at]]) {
      if (came[edge.to].second != nullptr) continue;
      came[edge.to] = {queue[at], &edge};
      queue.push_back(edge.to);
      if (edge.to == to) at = queue.size();
      if (edge.to == to) break;
    }
  }
  std::vector<std::pair<uint32_t, Edge>> steps;
  if (came[to].second == nullptr) return steps;
  for (uint32_t at = to; steps.empty() || at != from; at = came[at].first) {
    steps.emplace_back(came[at].first, *came[at].second);
  }
  std::reverse(steps.begin(), steps.end());
  return steps;
}

std::vector<std::pair<uint32_t, Edge>> Graph::shortest_cycle() const {
  std::vector<std::pair<uint32_t, Edge>> shortest;
  for (uint32_t i = 0; i < edges_.size(); ++i) {
    auto cycle = way(i, i);
    if (cycle.empty() || (!shortest.empty() && shortest.size() <= cycle.size())) continue;
    shortest = std::move(cycle);
  }
  return shortest;
}

std::string Graph::words(uint32_t from, const Edge& edge) const {
  const std::string first = name(from);
  const std::string second = name(edge.to);
  const std::string key = edge.why == Why::kTime ? "" : facts_.keys[edge.key];
  const std::string saw = edge.scanned ? " scanned " : " read ";
  switch (edge.why) {
    case Why::kRead: return second + saw + key + " as " + first + " had put it";
    case Why::kErased:
      return second + saw + key + " as absent, which only " + first + " had erased";
    case Why::kOverwritten: return first + saw + key + " as it was before " + second + " wrote it";
    case Why::kWrites: return first + " wrote " + key + " before " + second + " did";
    case Why::kTime:
      return first + " had ended at " + std::to_string(facts_.nodes[from].ended) + " when " +
             second + " began at " + std::to_string(facts_.nodes[edge.to].began);
  }
  return {};
}

std::optional<std::string> Graph::explain() {
  for (;;) {
    if (!find_reachable()) break;
    if (!conclude()) return std::nullopt;
  }
  const auto cycle = shortest_cycle();
  std::string text =
      "each of these transactions must be before the next, and the last before the "
      "first:";
  for (const auto& [from, edge] : cycle) {
    text += "\n  " + name(from) + " before " + name(edge.to) + ": " + words(from, edge);
  }
  return text;
}

}  // namespace

std::optional<std::string> explain_by_cycle(const HistoryFacts& facts) {
  if (facts.nodes.size() > kMostNodes) return std::nullopt;
  return Graph(facts).explain();
}

}  // namespace pmstore::scenario
