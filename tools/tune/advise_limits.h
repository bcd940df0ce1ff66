// The known limits of the rate of requests on a machine: the link, the RNIC, the media of the
// DIMMs. tune advise compares with them.
//
// Threads: values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ddio/machine.h"
#include "model/parameters.h"
#include "persist/nvm_inventory.h"
#include "tools/bench/micro_point.h"

namespace pmstore::tools {

// 0: not known, or there is none.
struct MachineLimits {
  double link_bytes_per_ns = 0;
  double packet_header_bytes = 0;
  double packet_bytes = 4096;  // payload of a packet at most
  // The time for which one request occupies the server's RNIC, by kind.
  double write_ns = 0;       // one-sided, below 64 bytes
  double write_line_ns = 0;  // one-sided, from 64 bytes on
  double two_sided_ns = 0;
  double atomic_ns = 0;
  // The time that the media of all DIMMs of the pool take for 256 bytes written.
  double media_write_ns = 0;
  double dimms = 0;  // of those
};

struct RateLimit {
  std::string name;  // "link", "RNIC", "media of 6 DIMMs"
  double per_s = 0;
};

// Those of the modelled machine, by its parameters.
MachineLimits model_limits(const model::Parameters& parameters);
// Those of this machine: the fastest active RDMA port in sysfs when `rdma`, and the DIMMs behind
// `pool` when it is a DAX device of one of `regions`: 2.2 GB/s each, which is published for writes
// of whole 256 bytes to Optane (100 Gb/s a socket of six).
MachineLimits host_limits(const ddio::Machine& machine, bool rdma,
                          const std::vector<persist::NvmRegion>& regions, const std::string& pool);

// The limits of `point`, the lowest first; for writes and atomics only, with all rules that the
// point requests.
std::vector<RateLimit> rate_limits(const MachineLimits& limits, const MicroPoint& point);

// "100 Gb/s (4X EDR)" in bytes per ns: 12.5; 0 when it says nothing.
double parse_link_rate(const std::string& text);

}  // namespace pmstore::tools
