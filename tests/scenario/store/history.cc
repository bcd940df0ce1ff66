#include "tests/scenario/store/history.h"

#include <algorithm>

namespace pmstore::scenario {

struct History::Graph {
  std::vector<std::vector<size_t>> after;  // edges

  // A node of a cycle, by depth-first search without recursion.
  std::optional<size_t> cycle() const {
    enum class Colour : uint8_t { kWhite, kGrey, kBlack };
    std::vector<Colour> colours(after.size(), Colour::kWhite);
    for (size_t root = 0; root < after.size(); ++root) {
      if (colours[root] != Colour::kWhite) continue;
      std::vector<std::pair<size_t, size_t>> path = {{root, 0}};
      colours[root] = Colour::kGrey;
      while (!path.empty()) {
        auto& [node, next] = path.back();
        if (next == after[node].size()) {
          colours[node] = Colour::kBlack;
          path.pop_back();
          continue;
        }
        const size_t to = after[node][next++];
        if (colours[to] == Colour::kGrey) return to;
        if (colours[to] == Colour::kBlack) continue;
        colours[to] = Colour::kGrey;
        path.emplace_back(to, 0);
      }
    }
    return std::nullopt;
  }
};

std::optional<std::string> History::check() const {
  std::map<uint64_t, size_t> index;
  for (size_t i = 0; i < transactions_.size(); ++i) index[transactions_[i].name] = i;

  // Who overwrote which version of which register.
  std::map<std::pair<std::string, uint64_t>, size_t> overwriter;
  for (size_t i = 0; i < transactions_.size(); ++i) {
    for (const std::string& name : transactions_[i].writes) {
      const uint64_t from = transactions_[i].reads.at(name);
      const auto [at, first] = overwriter.emplace(std::pair(name, from), i);
      if (!first) {
        return "lost update of " + name + ": both " + std::to_string(transactions_[i].name) +
               " and " + std::to_string(transactions_[at->second].name) + " overwrote what " +
               std::to_string(from) + " wrote";
      }
    }
  }

  Graph graph;
  graph.after.resize(transactions_.size());
  for (size_t i = 0; i < transactions_.size(); ++i) {
    for (const auto& [name, from] : transactions_[i].reads) {
      if (from != 0) {
        const auto writer = index.find(from);
        if (writer == index.end()) {
          return "transaction " + std::to_string(transactions_[i].name) + " read what " +
                 std::to_string(from) + " wrote, which never committed";
        }
        graph.after[writer->second].push_back(i);
      }
      const auto next = overwriter.find({name, from});
      if (next != overwriter.end() && next->second != i) graph.after[i].push_back(next->second);
    }
  }

  // Real time, with few edges: in order of their ends, each is before the first ones that began
  // later, and those whose begin no end of a later beginner separates.
  std::vector<size_t> by_begin(transactions_.size());
  for (size_t i = 0; i < by_begin.size(); ++i) by_begin[i] = i;
  std::sort(by_begin.begin(), by_begin.end(),
            [&](size_t a, size_t b) { return transactions_[a].began < transactions_[b].began; });
  for (size_t i = 0; i < transactions_.size(); ++i) {
    const auto first = std::partition_point(by_begin.begin(), by_begin.end(), [&](size_t other) {
      return transactions_[other].began <= transactions_[i].ended;
    });
    uint64_t earliest_end = UINT64_MAX;
    for (auto at = first; at != by_begin.end(); ++at) {
      // What begins after one of these has ended is reached through it.
      if (transactions_[*at].began > earliest_end) break;
      graph.after[i].push_back(*at);
      earliest_end = std::min(earliest_end, transactions_[*at].ended);
    }
  }

  if (const auto at = graph.cycle()) {
    return "no order explains transaction " + std::to_string(transactions_[*at].name);
  }
  return std::nullopt;
}

}  // namespace pmstore::scenario
