// The run of a store under lock discipline rnic, on the modelled machine: the real server and two
// clients of it, who lock, log and write in place by one-sided operations over the modelled
// network; the power of the server may be cut at every store, flush, drain, packet and DMA write.
//
//   store-rnic       ADR, DDIO off: logs and commits are one-sided
//   store-rnic-eadr  eADR, DDIO on
//   store-rnic-ddio  ADR, DDIO on: logs and commits go through the server's CPU
// Seed 0 is a script; others are drawn.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tests/crash/served_store_steps.h"

namespace pmstore::crash {

std::unique_ptr<RecordedRun> store_rnic_run(const std::string& scenario, uint64_t seed,
                                            const ServedStore& what);

}  // namespace pmstore::crash
