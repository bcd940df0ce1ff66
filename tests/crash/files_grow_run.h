// The run of a file system whose data takes sections of the pool when it needs them, and gives them
// back when they are empty; logs take what it gave back, and give it back in their turn.
//
//   files-grow        under ADR
//   files-grow-none   in a file, outside of any persistence domain
// Seed 0 is a script; others are drawn.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "persist/domain.h"
#include "tests/crash/recorded_run.h"

namespace pmstore::crash {

std::unique_ptr<RecordedRun> files_grow_run(const std::string& scenario, uint64_t seed,
                                            persist::Domain domain);

}  // namespace pmstore::crash
