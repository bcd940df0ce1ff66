// No power fails: a replicated log is deleted and made again under its name while a server is away
// that has a higher membership of the one before; replicas are replaced by others of that name,
// also while the log is opened or made; followers of logs that are no more. What is there of one
// log must never be taken for the other's. All is checked in the life itself; its trace is empty.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tests/crash/life.h"

namespace pmstore::crash {

std::unique_ptr<Life> replica_identity_life(const std::string& scenario, uint64_t seed);

}  // namespace pmstore::crash
