// The run of a pool in a plain region: formatted, extents allocated, processes that die.
//
//   pool   under ADR
// Seed 0 is a script; others are drawn.
#pragma once

#include <cstdint>
#include <memory>

#include "tests/crash/recorded_run.h"

namespace pmstore::crash {

std::unique_ptr<RecordedRun> pool_run(const std::string& scenario, uint64_t seed,
                                      persist::Domain domain);

}  // namespace pmstore::crash
