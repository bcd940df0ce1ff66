// No power fails: a replicated log is deleted and made again under its name while a server is away
// that has a higher membership of the one before; replicas are replaced by others of that name,
// also while the log is opened or made; followers of logs that are no more. What is there of one
// log must never be taken for the other's. All is checked in the run itself; its trace is empty.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tests/crash/recorded_run.h"

namespace pmstore::crash {

std::unique_ptr<RecordedRun> replica_identity_run(const std::string& scenario, uint64_t seed);

}  // namespace pmstore::crash
