// The run of a file system: create, rename, link, unlink, truncate, extending writes, small files
// that outgrow their inode, holes that are punched, files that are unlinked while they are open,
// servers that die and start again on the same memory.
//
//   files         under ADR
//   files-none    in a file, outside of any persistence domain
// Seed 0 is a script; others are drawn.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tests/crash/recorded_run.h"

namespace pmstore::crash {

std::unique_ptr<RecordedRun> files_run(const std::string& scenario, uint64_t seed,
                                       persist::Domain domain);

}  // namespace pmstore::crash
