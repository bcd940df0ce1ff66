#include "model/memory_controller.h"

#include <algorithm>

#include "model/picoseconds.h"

namespace pmstore::model {

MemoryController::MemoryController(const Parameters& parameters, const Now* now)
    : stripe_bytes_(static_cast<uint64_t>(parameters.dimm.interleave_bytes)),
      request_ps_(to_ps(parameters.imc.request_ns)),
      dimms_(static_cast<size_t>(parameters.dimm.per_socket), Dimm(parameters.dimm, now)),
      buses_(dimms_.size(), Server(now)),
      queues_(dimms_.size(), Window(static_cast<size_t>(parameters.imc.write_queue))),
      dram_(parameters.dram, now) {}

uint64_t MemoryController::write(uint64_t at_ps, Line line, Dimm::Writer writer, bool evicted) {
  if (line.medium() == Medium::kDram) return dram_.write(at_ps, line.address());
  const size_t dimm = dimm_of(line.address());
  const uint64_t queued_ps = queues_[dimm].room_at(at_ps);
  const uint64_t sent_ps = buses_[dimm].take(queued_ps, request_ps_);
  queues_[dimm].enter(dimms_[dimm].write(sent_ps, line.address(), writer, evicted));
  return queued_ps;
}

uint64_t MemoryController::write_part(uint64_t at_ps, Line line, Dimm::Writer writer) {
  const uint64_t rest_ps = read(at_ps, line, writer);
  return std::max(rest_ps, write(at_ps, line, writer));
}

uint64_t MemoryController::read(uint64_t at_ps, Line line, Dimm::Writer reader) {
  if (line.medium() == Medium::kDram) return dram_.read(at_ps, line.address());
  const size_t dimm = dimm_of(line.address());
  return dimms_[dimm].read(at_ps, line.address(), reader);
}

void MemoryController::write_untimed(Line line) {
  if (line.medium() == Medium::kDram) return;
  dimms_[dimm_of(line.address())].write_untimed(line.address());
}

void MemoryController::settle() {
  for (Dimm& dimm : dimms_) dimm.settle();
}

}  // namespace pmstore::model
