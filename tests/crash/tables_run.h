// The run of a store's table of tables that is larger than the pool's root area: tables are made
// and dropped, and processes die.
//
//   tables   under ADR
// Seed 0 is a script; others are drawn.
#pragma once

#include <cstdint>
#include <memory>

#include "tests/crash/recorded_run.h"

namespace pmstore::crash {

std::unique_ptr<RecordedRun> tables_run(const std::string& scenario, uint64_t seed,
                                        persist::Domain domain);

}  // namespace pmstore::crash
