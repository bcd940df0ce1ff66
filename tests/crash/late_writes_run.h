// The run of a file area whose client writes to freed units behind its word that it has no map of
// them: such units are zero, durably, before they are free again.
//
//   late-writes   under ADR
// Seed 0 is a script; others are drawn.
#pragma once

#include <cstdint>
#include <memory>

#include "tests/crash/recorded_run.h"

namespace pmstore::crash {

std::unique_ptr<RecordedRun> late_writes_run(const std::string& scenario, uint64_t seed,
                                             persist::Domain domain);

}  // namespace pmstore::crash
