#include "model/dram.h"

#include "model/picoseconds.h"

namespace pmstore::model {

Dram::Dram(const DramParameters& parameters, const Now* now)
    : channels_(static_cast<size_t>(parameters.channels), Server(now)),
      line_ps_(to_ps(parameters.line_ns)),
      latency_ps_(to_ps(parameters.latency_ns)) {}

uint64_t Dram::read(uint64_t at_ps, uint64_t address) {
  return channel(address).take(at_ps, line_ps_) - line_ps_ + latency_ps_;
}

uint64_t Dram::write(uint64_t at_ps, uint64_t address) {
  return channel(address).take(at_ps, line_ps_) - line_ps_;
}

}  // namespace pmstore::model
