// ModelledMicro: one measurement of the remote-access benchmark (tools/bench/micro_workload.h) on a
// modelled machine in virtual time: one server host, several client hosts, the real workload, RPC
// and fabric code in between. The same point and parameters give the same figures on every host.
// Threads: one.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "model/dimm_counters.h"
#include "model/parameters.h"
#include "model/rnic.h"
#include "tools/bench/micro_point.h"

namespace pmstore::sim {

struct MicroMachine {
  model::Parameters parameters;
  uint32_t client_hosts = 4;
  uint64_t seed = 1;
};

struct MicroFigures {
  double rate_m;   // requests, M/s
  double gb_s;     // payload, Gb/s
  double mean_ns;  // latency
  // Of the server, while the clients measured.
  model::DimmCounters dimms;
  model::RnicCounters rnic;
  uint64_t operations;
  double cpu_share;  // of the server threads' time

  double reads_per_write_request() const {
    return static_cast<double>(dimms.read_requests) / static_cast<double>(dimms.write_requests);
  }
};

// Rule H1 off puts the memory on the other socket than RNIC and server threads; rule H3 off leaves
// DDIO on. The range of the point must be at most kMicroRangeBytes. CHECK when anything fails.
MicroFigures run_modelled(const MicroMachine& machine, const tools::MicroPoint& point);

inline constexpr uint64_t kMicroRangeBytes = uint64_t{4} << 30;

}  // namespace pmstore::sim
