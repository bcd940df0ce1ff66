// The run of units of a file area that a client writes to after it has confirmed that it has no map
// of them, as a client that does what it may not: such a unit is zero again before it is free.
//
//   units   under ADR
// Seed 0 is a script; others are drawn.
#pragma once

#include <cstdint>
#include <memory>

#include "tests/crash/recorded_run.h"

namespace pmstore::crash {

std::unique_ptr<RecordedRun> units_run(const std::string& scenario, uint64_t seed,
                                       persist::Domain domain);

}  // namespace pmstore::crash
