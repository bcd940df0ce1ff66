// The run of `pmstore pool convert`: a pool of an earlier release, whose rings hold what is in no
// slot yet, is converted and used.
//
//   convert       under ADR, a pool of catalog version 2
//   convert-none  in a file, a pool of catalog version 1
//   convert-log   under ADR, a pool of catalog version 3, which has a shard log
// The same for every seed but for the sizes of values.
#pragma once

#include <memory>
#include <string>

#include "tests/crash/recorded_run.h"

namespace pmstore::crash {

std::unique_ptr<RecordedRun> convert_run(const std::string& scenario, uint64_t seed,
                                         persist::Domain domain, uint32_t version);

}  // namespace pmstore::crash
