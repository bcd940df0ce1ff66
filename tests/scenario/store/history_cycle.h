// Says in words what is wrong with a history that has no order.
#pragma once

#include <optional>
#include <string>

#include "tests/scenario/store/history_facts.h"

namespace pmstore::scenario {

// Transactions of which each must be before the next, and the last before the first, with the
// reason for each; as few of them as possible. The order of the writes of a key, and who made it
// absent, are concluded from the other reasons where they leave one possibility only. nullopt: they
// leave more, so an impossible history may have no such cycle; or the history is too long.
std::optional<std::string> explain_by_cycle(const HistoryFacts& facts);

}  // namespace pmstore::scenario
