// The run of a redo ring on the modelled machine: a client's log::RemoteAppender appends to it
// over the modelled network, the server truncates it, walks it and gives it to the next client, and
// the power of the server may be cut at every store, flush, drain, packet and DMA write.
//
//   ring-rnic       ADR, DDIO off: one-sided writes by each strategy, and two-sided ones
//   ring-rnic-eadr  eADR, DDIO on: the same, and large entries two-sided between small ones
//   ring-rnic-ddio  ADR, DDIO on: what the client negotiates is two-sided
// Seed 0 is a script that does everything once; others are drawn.
#pragma once

#include <cstdint>
#include <memory>

#include "persist/domain.h"
#include "tests/crash/recorded_run.h"

namespace pmstore::crash {

struct RnicRing {
  persist::Domain domain = persist::Domain::kMemoryController;
  bool ddio = false;
  bool rule_h7 = true;  // of two-sided writes
  // Writes of at least so many bytes go two-sided, where they land in a cache (RemoteWriter).
  uint32_t two_sided_bytes = 0;
};

std::unique_ptr<RecordedRun> ring_rnic_run(const std::string& scenario, uint64_t seed,
                                           const RnicRing& what);

}  // namespace pmstore::crash
