// No power fails: two producers take a replicated log without entries from each other, one of them
// in the midst of the other's taking it, whatever that has got to, and each appends what only it
// would; and two decisions about the members behind the same one. All is checked in the run
// itself; its trace is empty.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tests/crash/recorded_run.h"

namespace pmstore::crash {

std::unique_ptr<RecordedRun> replica_races_run(const std::string& scenario, uint64_t seed);

}  // namespace pmstore::crash
