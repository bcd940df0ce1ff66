// Identities of replicated logs, without power cuts: a log is deleted and made again under its name
// while a server is away that has a higher membership of the earlier log; replicas are replaced by
// others of that name, also while the log is opened or made; followers of deleted logs. A replica
// of one log must never be taken for a replica of the other. All is checked in the run itself; its
// trace is empty.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tests/crash/recorded_run.h"

namespace pmstore::crash {

std::unique_ptr<RecordedRun> replica_identity_run(const std::string& scenario, uint64_t seed);

}  // namespace pmstore::crash
