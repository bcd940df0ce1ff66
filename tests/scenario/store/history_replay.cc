#include "tests/scenario/store/history_replay.h"

#include <algorithm>

namespace pmstore::scenario {

std::optional<std::string> HistoryReplay::read(const History::Transaction::Step& step) const {
  const auto at = state_.find(step.key);
  const uint64_t writer = at == state_.end() ? History::kAbsent : at->second;
  if (writer == step.writer) return std::nullopt;
  return "it read " + step.key + " of " + std::to_string(step.writer) + " and not of " +
         std::to_string(writer);
}

std::optional<std::string> HistoryReplay::scan(const History::Transaction::Step& step) const {
  if (step.to <= step.key) return std::nullopt;
  const History::Seen there(state_.lower_bound(step.key), state_.lower_bound(step.to));
  if (there == step.seen) return std::nullopt;
  return "its scan from " + step.key + " to " + step.to + " saw " +
         std::to_string(step.seen.size()) + " keys, which are not the " +
         std::to_string(there.size()) + " that are there";
}

std::optional<std::string> HistoryReplay::run(const History::Transaction& transaction) {
  if (transaction.ended_ < latest_begin_) return "it had ended when one before it began";
  latest_begin_ = std::max(latest_begin_, transaction.began_);
  using Kind = History::Transaction::Kind;
  for (const History::Transaction::Step& step : transaction.steps_) {
    std::optional<std::string> different;
    switch (step.kind) {
      case Kind::kRead: different = read(step); break;
      case Kind::kScan: different = scan(step); break;
      case Kind::kPut: state_[step.key] = transaction.name_; break;
      case Kind::kErase: state_.erase(step.key); break;
    }
    if (different) return different;
  }
  return std::nullopt;
}

}  // namespace pmstore::scenario
