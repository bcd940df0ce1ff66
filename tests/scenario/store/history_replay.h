// HistoryReplay: runs the steps of transactions one after the other on a plain map, and compares.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "tests/scenario/store/history.h"

namespace pmstore::scenario {

class HistoryReplay {
 public:
  // Nothing: the transaction has seen and left what one does that runs here, alone. Else the first
  // difference.
  std::optional<std::string> run(const History::Transaction& transaction);

 private:
  std::optional<std::string> read(const History::Transaction::Step& step) const;
  std::optional<std::string> scan(const History::Transaction::Step& step) const;

  History::Seen state_;
  uint64_t latest_begin_ = 0;
};

}  // namespace pmstore::scenario
