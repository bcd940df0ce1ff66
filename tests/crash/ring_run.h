// The run of a redo ring: formatted, taken over, appended to, truncated, wrapped, left behind by
// dying processes, taken over by others, formatted again.
//
//   ring        all of it by the owner's CPU, under ADR
//   ring-eadr   the same under eADR
//   ring-none   the same in a file, outside of any persistence domain
//   ring-dma    entries come from a client's one-sided writes: in the RNIC's buffer first, landing
//               in memory (DDIO off, ADR) some time before the READ behind them is answered
//   ring-ddio   the same, landing in the last-level cache, under eADR
// Seed 0 is a script that does everything once; others are drawn.
#pragma once

#include <cstdint>
#include <memory>

#include "tests/crash/recorded_run.h"

namespace pmstore::crash {

enum class RingWriter : uint8_t { kCpu, kDevice };

std::unique_ptr<RecordedRun> ring_run(const std::string& scenario, uint64_t seed,
                                      persist::Domain domain, RingWriter writer);

}  // namespace pmstore::crash
