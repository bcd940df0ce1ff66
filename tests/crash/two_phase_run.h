// One server's part of transactions of several servers: prepared, decided, restarted, truncated.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "persist/domain.h"
#include "tests/crash/recorded_run.h"

namespace pmstore::crash {

// What a start finds is the content, in which the records that a prepared transaction writes are
// locked, with the transactions that are prepared, and those that are committed and not known to be
// so everywhere. Work: one of the prepared ones is decided; without one, a transaction of this
// server alone.
std::unique_ptr<RecordedRun> two_phase_run(const std::string& scenario, uint64_t seed,
                                           persist::Domain domain);

}  // namespace pmstore::crash
