// Decisions of a replicated log, without power cuts: refusals (too few members that would stay,
// members that cannot be asked, another log of that name); decisions that were left half recorded;
// producers that take the log from each other, or from one that appends, or open it while a member
// is added; one member that is lost during an append, and later the other one for good; the entries
// that readers saw before a server was started again. Distances of races are turns of the executor,
// since this fabric takes no time. All is checked in the run itself;
// its trace is empty.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tests/crash/recorded_run.h"

namespace pmstore::crash {

std::unique_ptr<RecordedRun> replica_decisions_run(const std::string& scenario, uint64_t seed);

}  // namespace pmstore::crash
