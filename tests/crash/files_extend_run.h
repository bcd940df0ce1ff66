// The scenario of large writes at the ends of files, by clients on a fabric.
//
//   files-extend        under ADR: clients write one-sided, into room that they have reserved
//   files-extend-none   in files, outside of any persistence domain: the same by calls
// Seed 0 is a script; others are drawn.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "persist/domain.h"
#include "tests/crash/recorded_run.h"

namespace pmstore::crash {

// A namespace server, a data server and two clients, all of the product, on the modelled machine:
// files are extended by one client or both at the same time, beside appends, truncations and a
// drain; clients die amid that. A power cut of both servers at each event must leave the files as
// some order of the calls has made them, with every call that was acknowledged.
std::unique_ptr<RecordedRun> files_extend_run(const std::string& scenario, uint64_t seed,
                                              persist::Domain domain);

}  // namespace pmstore::crash
