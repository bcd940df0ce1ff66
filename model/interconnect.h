// Interconnect: the path from one socket to another (UPI).
//
// Modelled: a latency; the link's bandwidth for lines that are read; and what a line written from
// the other socket costs, which is far more than its bytes: a line of which all 64 bytes come has
// one cost, a line that must be read, owned, changed and sent back (part of a line from a device,
// any store of a core that goes through its cache) another. Both are fitted; why they are what they
// are (trackers held for the latency of the NVM, directory bits in memory) is left out.
// One thread. One object for each direction.
#pragma once

#include <cstdint>

#include "model/parameters.h"
#include "model/picoseconds.h"
#include "model/queue.h"

namespace pmstore::model {

class Interconnect {
 public:
  explicit Interconnect(const NumaParameters& parameters, const Now* now = nullptr)
      : latency_ps_(to_ps(parameters.latency_ns)),
        read_ps_(to_ps(parameters.read_line_ns)),
        full_ps_(to_ps(parameters.full_line_ns)),
        owned_ps_(to_ps(parameters.owned_line_ns)),
        link_(now) {}

  uint64_t latency_ps() const { return latency_ps_; }
  // The time at which the other side has the request.
  uint64_t read_line(uint64_t at_ps) { return link_.take(at_ps, read_ps_) + latency_ps_; }
  uint64_t write_full_line(uint64_t at_ps) { return link_.take(at_ps, full_ps_) + latency_ps_; }
  uint64_t write_owned_line(uint64_t at_ps) { return link_.take(at_ps, owned_ps_) + latency_ps_; }

 private:
  uint64_t latency_ps_, read_ps_, full_ps_, owned_ps_;
  Server link_;
};

}  // namespace pmstore::model
