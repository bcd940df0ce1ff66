// The run of a log area (log/log_store.h): made, opened by dying processes, logs created, appended
// to, wrapped, trimmed, sealed, deleted; exclusive producers that come, are stolen from and fenced.
//
//   log        the server appends, producers' entries are in the caches until they are settled; ADR
//   log-eadr   the same under eADR
//   log-none   the same in a file, outside of any persistence domain
//   log-dma    producers' entries are one-sided writes into memory (DDIO off), acknowledged; ADR
//   log-ddio   the same, into the last-level cache, under eADR
//   log-version1  as `log`, in an area that version 1 has made, whose logs have no identity
//   log-by-need   as `log`, in a pool without an area: logs take extents and give them back
// Seed 0 is a script that does everything once; others are drawn.
#pragma once

#include <cstdint>
#include <memory>

#include "tests/crash/log_area_script.h"
#include "tests/crash/recorded_run.h"

namespace pmstore::crash {

std::unique_ptr<RecordedRun> log_run(const std::string& scenario, uint64_t seed,
                                     persist::Domain domain, log::LogWriter writer,
                                     log::LogVersion version);

}  // namespace pmstore::crash
