// The run of logs behind their service (log/log_service.h): two clients append by calls, alone and
// in batches, also at the same time, so that several calls share one drain. They trim, laps begin,
// clients vanish at each of their work requests, servers die at each moment of appends.
//
//   log-server       ADR, over the local fabric
//   log-server-none  the same in a file, outside of any persistence domain
//   log-server-rnic  ADR, on the modelled machine, which delivers one call at a time
//
// An append is acknowledged when the server gives its answer to the RNIC, before its client
// receives it. After each answer the oracle demands all entries up to those of the answer, in the
// server's order, each once, and allows any number of later ones. Seeds other than 0 draw sizes,
// distances and moments.
#pragma once

#include <memory>
#include <string>

#include "persist/domain.h"
#include "tests/crash/recorded_run.h"

namespace pmstore::crash {

struct LogServer {
  persist::Domain domain = persist::Domain::kMemoryController;
  bool modelled = false;
};

std::unique_ptr<RecordedRun> log_server_run(const std::string& scenario, uint64_t seed,
                                            const LogServer& what);

}  // namespace pmstore::crash
