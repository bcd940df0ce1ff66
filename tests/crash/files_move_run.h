// The scenario of files whose data is moved from one data server to another, while they are used.
#pragma once

#include <memory>
#include <string>

#include "persist/domain.h"
#include "tests/crash/recorded_run.h"

namespace pmstore::crash {

// A namespace and two data servers, the memories of which are one here; each drains only its own
// part. A server is drained: its state is recorded, and its extents are moved to the other one.
// Files are written, extended and truncated amid moves; processes die amid them. A power cut at
// each event must leave every file as it was acknowledged, each extent in one place, nothing lost
// of the space, and what is free zero; a server that was being drained can be emptied then.
std::unique_ptr<RecordedRun> files_move_run(const std::string& scenario, uint64_t seed,
                                            persist::Domain domain);

}  // namespace pmstore::crash
