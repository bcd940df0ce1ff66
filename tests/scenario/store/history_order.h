// A search for an order that explains a history.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/scenario/store/history_facts.h"

namespace pmstore::scenario {

struct HistoryOrder {
  // Nodes, with every certain one. Without it there is no order, or the search gave up.
  std::optional<std::vector<uint32_t>> nodes;
  bool gave_up = false;
  // Without an order: how far the best attempt came, and why it could not go on.
  std::string obstacle;
};

// Places one transaction after the other, each one that fits behind those placed before: it reads
// the state that they leave; it replaces no value that a later one still has to read; and no other
// one that is left had ended when it began. Where several fit, it tries one after the other. States
// from which the rest has failed are remembered. A transaction that only reads is placed as soon as
// it fits: this never makes a difference to others.
//
// Time: in proportion to the steps where little is ambiguous, as in a real history. An impossible
// history may have many orders to try, so the search gives up after a bounded number of steps.
HistoryOrder find_order(const HistoryFacts& facts);

}  // namespace pmstore::scenario
