// The name of one crash state, short enough for a command line:
//
//   ring:3/120/2.0.8x5          scenario, seed; power cut before event 120; how many of its stores
//                               each line in doubt keeps, by address (8x5: five lines keep 8)
//   ring:3/120/2.0.8x5/45/1     ... and again, before event 45 of what the start after that did
//   ring:3/120/dead/45/1        the process dies before event 120, the power before event 45 of the
//                               start after that
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/crash_states.h"

namespace pmstore::crash {

struct Cut {
  size_t event = 0;
  bool process_only = false;  // then the choice says nothing
  model::CrashStates::Choice choice;
};

struct StateId {
  std::string scenario;
  uint64_t seed = 0;
  std::vector<Cut> cuts;  // one after the other; the last one is of the power

  std::string text() const;
  // nullopt: not such a name.
  static std::optional<StateId> parse(const std::string& text);
};

}  // namespace pmstore::crash
