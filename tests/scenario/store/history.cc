#include "tests/scenario/store/history.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "tests/scenario/store/history_cycle.h"
#include "tests/scenario/store/history_facts.h"
#include "tests/scenario/store/history_order.h"
#include "tests/scenario/store/history_replay.h"

namespace pmstore::scenario {

void History::Transaction::read(std::string key, uint64_t writer) {
  steps_.push_back({Kind::kRead, std::move(key), {}, writer, {}});
}

void History::Transaction::scanned(std::string from, std::string to, Seen seen) {
  steps_.push_back({Kind::kScan, std::move(from), std::move(to), kAbsent, std::move(seen)});
}

void History::Transaction::put(std::string key) {
  steps_.push_back({Kind::kPut, std::move(key), {}, name_, {}});
}

void History::Transaction::erase(std::string key) {
  steps_.push_back({Kind::kErase, std::move(key), {}, kAbsent, {}});
}

void History::Transaction::end(Outcome outcome, uint64_t ended) {
  outcome_ = outcome;
  // Its effect may come later than the news that nobody knows whether there is one.
  ended_ = outcome == Outcome::kUnknown ? UINT64_MAX : ended;
}

History::Counts& History::Counts::operator+=(const Counts& other) {
  transactions += other.transactions;
  committed += other.committed;
  aborted += other.aborted;
  unknown += other.unknown;
  with_scan += other.with_scan;
  scan_written_into += other.scan_written_into;
  return *this;
}

History::Counts History::counts() const {
  using Kind = Transaction::Kind;
  const auto writes_into = [](const Transaction& writer, const Transaction::Step& scan) {
    return std::any_of(writer.steps_.begin(), writer.steps_.end(), [&](const auto& step) {
      const bool writes = step.kind == Kind::kPut || step.kind == Kind::kErase;
      return writes && step.key >= scan.key && step.key < scan.to;
    });
  };
  Counts counts;
  for (const Transaction& one : transactions_) {
    ++counts.transactions;
    counts.committed += one.outcome_ == Outcome::kCommitted;
    counts.aborted += one.outcome_ == Outcome::kAborted;
    counts.unknown += one.outcome_ == Outcome::kUnknown;
    bool scans = false;
    bool written_into = false;
    for (const Transaction::Step& step : one.steps_) {
      if (step.kind != Kind::kScan) continue;
      scans = true;
      for (const Transaction& other : transactions_) {
        if (written_into) break;
        if (&other == &one || other.outcome_ != Outcome::kCommitted) continue;
        if (other.ended_ < one.began_ || other.began_ > one.ended_) continue;
        written_into = writes_into(other, step);
      }
    }
    counts.with_scan += scans;
    counts.scan_written_into += written_into;
  }
  return counts;
}

// Makes HistoryFacts of a history, or finds what is wrong with a transaction by itself.
class History::Preparation {
 public:
  explicit Preparation(const std::vector<Transaction>& transactions) : all_(transactions) {}

  std::optional<std::string> run();
  const HistoryFacts& facts() const { return facts_; }
  // The transaction of a node.
  const Transaction& of(uint32_t node) const { return all_[transaction_of_[node]]; }

 private:
  struct Key {
    bool scanned;
    uint64_t writer;
  };
  using Kind = Transaction::Kind;

  void number_keys();
  void number_writes();
  std::optional<std::string> add_reads(uint32_t node);
  // One key of a step, as it was seen.
  std::optional<std::string> saw(const std::string& key, Key seen);
  std::optional<std::string> find_certain();
  void find_in_play();
  uint32_t key_number(const std::string& key) const {
    const auto at = std::lower_bound(facts_.keys.begin(), facts_.keys.end(), key);
    PMSTORE_CHECK(at != facts_.keys.end() && *at == key, "every key of the history has a number");
    return static_cast<uint32_t>(at - facts_.keys.begin());
  }

  const std::vector<Transaction>& all_;
  HistoryFacts facts_;
  std::vector<size_t> transaction_of_;                            // of a node
  std::map<uint64_t, size_t> by_name_;                            // -> index in all_
  std::map<std::pair<uint32_t, uint64_t>, uint32_t> version_of_;  // of key and name
  std::map<std::string, uint64_t> own_;                           // what add_reads() has passed
  std::map<std::string, Key> reads_;                              // likewise
  std::map<uint32_t, std::string> impossible_;  // nodes that cannot have committed, and why
};

void History::Preparation::number_keys() {
  std::set<std::string> keys;
  for (const Transaction& one : all_) {
    for (const Transaction::Step& step : one.steps_) {
      if (step.kind != Kind::kScan) keys.insert(step.key);
      for (const auto& [key, writer] : step.seen) keys.insert(key);
    }
  }
  facts_.keys.assign(keys.begin(), keys.end());
}

void History::Preparation::number_writes() {
  facts_.writer_of.push_back(UINT32_MAX);
  for (size_t i = 0; i < all_.size(); ++i) {
    const Transaction& one = all_[i];
    if (one.outcome_ == Outcome::kAborted) continue;
    std::map<uint32_t, bool> writes;  // what it leaves: the last write of each key
    for (const Transaction::Step& step : one.steps_) {
      if (step.kind == Kind::kPut) writes[key_number(step.key)] = true;
      if (step.kind == Kind::kErase) writes[key_number(step.key)] = false;
    }
    const auto node = static_cast<uint32_t>(facts_.nodes.size());
    facts_.nodes.push_back(
        {one.name_, one.began_, one.ended_, one.outcome_ == Outcome::kCommitted, false, {}, {}});
    transaction_of_.push_back(i);
    for (const auto& [key, present] : writes) {
      uint32_t version = HistoryFacts::kAbsent;
      if (present) {
        version = static_cast<uint32_t>(facts_.writer_of.size());
        facts_.writer_of.push_back(node);
        version_of_[{key, one.name_}] = version;
      }
      facts_.nodes.back().writes.push_back({key, version, false});
    }
  }
}

std::optional<std::string> History::Preparation::saw(const std::string& key, Key seen) {
  const auto whose = [](uint64_t writer) {
    return writer == kAbsent ? "as absent" : "of " + std::to_string(writer);
  };
  if (const auto own = own_.find(key); own != own_.end()) {
    if (own->second == seen.writer) return std::nullopt;
    return "its own write of " + key + " is hidden: it sees it " + whose(seen.writer);
  }
  const auto [before, first] = reads_.emplace(key, seen);
  if (!first && before->second.writer != seen.writer) {
    return "it saw " + key + " " + whose(before->second.writer) + ", and then " +
           whose(seen.writer);
  }
  if (!first || seen.writer == kAbsent) return std::nullopt;
  const auto writer = by_name_.find(seen.writer);
  if (writer == by_name_.end()) {
    return "it read " + key + " " + whose(seen.writer) + ", which there never was";
  }
  if (all_[writer->second].outcome_ == Outcome::kAborted) {
    return "it read " + key + " " + whose(seen.writer) + ", which was aborted";
  }
  if (version_of_.contains({key_number(key), seen.writer})) return std::nullopt;
  return "it read " + key + " " + whose(seen.writer) + ", which did not leave it so";
}

std::optional<std::string> History::Preparation::add_reads(uint32_t node) {
  own_.clear();
  reads_.clear();
  for (const Transaction::Step& step : of(node).steps_) {
    std::optional<std::string> wrong;
    switch (step.kind) {
      case Kind::kPut:
      case Kind::kErase: own_[step.key] = step.writer; break;
      case Kind::kRead: wrong = saw(step.key, {false, step.writer}); break;
      case Kind::kScan: {
        for (const auto& [key, writer] : step.seen) {
          if (key < step.key || key >= step.to) wrong = "its scan saw " + key + " beyond its range";
        }
        const auto& keys = facts_.keys;
        for (auto key = std::lower_bound(keys.begin(), keys.end(), step.key);
             key != keys.end() && *key < step.to && !wrong; ++key) {
          const auto seen = step.seen.find(*key);
          wrong = saw(*key, {true, seen == step.seen.end() ? kAbsent : seen->second});
        }
      }
    }
    if (wrong) return wrong;
  }
  for (const auto& [key, seen] : reads_) {
    const uint32_t number = key_number(key);
    const uint32_t version =
        seen.writer == kAbsent ? HistoryFacts::kAbsent : version_of_.at({number, seen.writer});
    facts_.nodes[node].reads.push_back({number, version, seen.scanned});
  }
  return std::nullopt;
}

// What a certain one has read is of a certain one.
std::optional<std::string> History::Preparation::find_certain() {
  std::vector<uint32_t> certain;
  for (uint32_t i = 0; i < facts_.nodes.size(); ++i) {
    if (facts_.nodes[i].certain) certain.push_back(i);
  }
  while (!certain.empty()) {
    const HistoryFacts::Node& node = facts_.nodes[certain.back()];
    certain.pop_back();
    for (const HistoryFacts::Access& read : node.reads) {
      if (read.version == HistoryFacts::kAbsent) continue;
      const uint32_t writer = facts_.writer_of[read.version];
      if (std::exchange(facts_.nodes[writer].certain, true)) continue;
      if (const auto wrong = impossible_.find(writer); wrong != impossible_.end()) {
        return "transaction " + std::to_string(facts_.nodes[writer].name) + " has committed, for " +
               std::to_string(node.name) + " read " + facts_.keys[read.key] +
               " of it: " + wrong->second;
      }
      certain.push_back(writer);
    }
  }
  return std::nullopt;
}

// What none has read may as well not have happened; an erase may be what others have seen.
void History::Preparation::find_in_play() {
  std::vector<uint32_t> in_play;
  for (uint32_t i = 0; i < facts_.nodes.size(); ++i) {
    HistoryFacts::Node& node = facts_.nodes[i];
    const bool erases = std::any_of(
        node.writes.begin(), node.writes.end(),
        [](const HistoryFacts::Access& write) { return write.version == HistoryFacts::kAbsent; });
    node.in_play = node.certain || (erases && !impossible_.contains(i));
    if (node.in_play) in_play.push_back(i);
  }
  while (!in_play.empty()) {
    const HistoryFacts::Node& node = facts_.nodes[in_play.back()];
    in_play.pop_back();
    for (const HistoryFacts::Access& read : node.reads) {
      if (read.version == HistoryFacts::kAbsent) continue;
      const uint32_t writer = facts_.writer_of[read.version];
      if (impossible_.contains(writer)) continue;
      if (!std::exchange(facts_.nodes[writer].in_play, true)) in_play.push_back(writer);
    }
  }
}

std::optional<std::string> History::Preparation::run() {
  for (size_t i = 0; i < all_.size(); ++i) {
    PMSTORE_CHECK(all_[i].name_ != kAbsent, "the name 0 is that of nobody");
    PMSTORE_CHECK(by_name_.emplace(all_[i].name_, i).second, "a name names one transaction");
  }
  number_keys();
  number_writes();
  for (uint32_t i = 0; i < facts_.nodes.size(); ++i) {
    auto wrong = add_reads(i);
    if (!wrong) continue;
    // Before its commit a transaction may have seen what no committed one may see.
    if (facts_.nodes[i].certain) {
      return "transaction " + std::to_string(facts_.nodes[i].name) + ": " + *wrong;
    }
    impossible_[i] = std::move(*wrong);
  }
  if (auto wrong = find_certain()) return wrong;
  find_in_play();
  return std::nullopt;
}

std::optional<std::string> History::check() const {
  Preparation preparation(transactions_);
  if (auto wrong = preparation.run()) return wrong;
  const HistoryFacts& facts = preparation.facts();
  const HistoryOrder order = find_order(facts);
  if (!order.nodes) {
    if (auto cycle = explain_by_cycle(facts)) return cycle;
    return (order.gave_up ? "no order was found within the bound of the search: "
                          : "no order explains the transactions: ") +
           order.obstacle;
  }
  HistoryReplay replay;
  std::vector<bool> placed(facts.nodes.size(), false);
  for (const uint32_t node : *order.nodes) {
    const std::string name = "transaction " + std::to_string(facts.nodes[node].name);
    if (placed[node]) return "the order that was found has " + name + " twice";
    placed[node] = true;
    if (const auto different = replay.run(preparation.of(node))) {
      return "the order that was found is none: " + name + ": " + *different;
    }
  }
  for (uint32_t i = 0; i < facts.nodes.size(); ++i) {
    if (facts.nodes[i].certain && !placed[i]) return "the order that was found is not complete";
  }
  return std::nullopt;
}

}  // namespace pmstore::scenario
