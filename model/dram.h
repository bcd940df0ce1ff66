// Dram: the DRAM of one socket: channels interleaved by 256 bytes, each with a bandwidth, and one
// latency.
//
// Left out: banks, open rows and refresh; what is published of them does not reach the RNIC.
// One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "model/parameters.h"
#include "model/queue.h"

namespace pmstore::model {

class Dram {
 public:
  explicit Dram(const DramParameters& parameters, const Now* now = nullptr);

  // Reads 64 bytes at `address`. Gives the time at which the controller has the data.
  uint64_t read(uint64_t at_ps, uint64_t address);
  // Writes 64 bytes. Gives the time at which the channel has taken them.
  uint64_t write(uint64_t at_ps, uint64_t address);

 private:
  Server& channel(uint64_t address) { return channels_[address / 256 % channels_.size()]; }

  std::vector<Server> channels_;
  uint64_t line_ps_, latency_ps_;
};

}  // namespace pmstore::model
