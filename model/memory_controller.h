// MemoryController: the memory controllers of one socket, with its Optane DIMMs (interleaved by 4
// KiB) and its DRAM.
//
// Modelled: a write queue for each DIMM, which is where a line becomes durable under ADR and whose
// filling up is what makes writers wait; the bus to the DIMM; merging of a line of which only a
// part came with what the memory holds (a read of 64 bytes before the write). Reads pass waiting
// writes. Left out: that reads of a line still in the queue are answered from there, and the
// directory bits that a machine of several sockets keeps in its memory.
// One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/dimm.h"
#include "model/dram.h"
#include "model/line.h"
#include "model/parameters.h"

namespace pmstore::model {

class MemoryController {
 public:
  MemoryController(const Parameters& parameters, const Now* now);

  // Writes 64 bytes. Gives the time at which they are in the write queue: durable under ADR, and
  // visible to all.
  uint64_t write(uint64_t at_ps, Line line, Dimm::Writer writer, bool evicted = false);
  // Writes less than 64 bytes: the rest of the line is read first.
  uint64_t write_part(uint64_t at_ps, Line line, Dimm::Writer writer);
  // The time at which the controller has the data.
  uint64_t read(uint64_t at_ps, Line line, Dimm::Writer reader);

  size_t dimms() const { return dimms_.size(); }
  DimmCounters settled(size_t index) const { return dimms_[index].settled_counters(); }
  const DimmCounters& dimm(size_t index) const { return dimms_[index].counters(); }
  // For the counters, without time: a line, and what is in the buffers of the DIMMs.
  void write_untimed(Line line);
  void settle();

 private:
  size_t dimm_of(uint64_t address) const { return address / stripe_bytes_ % dimms_.size(); }

  uint64_t stripe_bytes_;
  uint64_t request_ps_;
  std::vector<Dimm> dimms_;
  std::vector<Server> buses_;   // of each DIMM
  std::vector<Window> queues_;  // of each DIMM
  Dram dram_;
};

}  // namespace pmstore::model
