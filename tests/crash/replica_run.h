// The run of a replicated log (log/replicated_log.h) on two or three servers: appends, several at
// a time, also while another producer takes the log over; laps of the ring; trims; members that are
// dropped and added again; servers that stop and come back. The power of any of the servers is cut
// at any event of any of them, and one of them may not come back (tests/crash/replica_servers.h).
//
//   replicas2, replicas3    the servers' CPUs store; ADR
//   replicas2-rnic, replicas3-rnic  one-sided, over the modelled machine; ADR, DDIO off
// Seed 0 is a script that does everything once; others are drawn.
#pragma once

#include <cstdint>
#include <memory>

#include "tests/crash/recorded_run.h"

namespace pmstore::crash {

struct ReplicaRunOptions {
  size_t servers = 3;
  bool rnic = false;
};

std::unique_ptr<RecordedRun> replica_run(const std::string& scenario, uint64_t seed,
                                         const ReplicaRunOptions& what);

}  // namespace pmstore::crash
