// The run of a store with one server, under lock discipline cpu: transactions of inserts, updates,
// moves and deletes, new slabs and slabs that are given back, a ring that wraps, servers that die
// and start again on the same memory.
//
//   store         under ADR
//   store-eadr    under eADR
//   store-none    in a file, outside of any persistence domain
//   store-unpadded  under ADR, in a pool without the rules H5 to H7
//   store-checkpoint  under ADR, in a pool with room for the checkpoints of orderly stops
//   store-checkpoint-none  the same in a file
//   store-frames  under ADR, in a pool that takes each chunk of records as an extent of its own
//   store-frames-none  the same in a file
//   store-large-frames  under ADR, in a pool with an extent of several chunks, whose headers are
//                 blanked in steps
//   store-large-frames-none  the same in a file
//   store-large   under ADR, with records of several chunks, whose bytes look like headers of slabs
// Seed 0 is a script; others are drawn.
#pragma once

#include <cstdint>
#include <memory>

#include "persist/padding.h"
#include "tests/crash/recorded_run.h"

namespace pmstore::crash {

// kFrames: each chunk is an extent of its own, taken and given back. kLargeFrames: half of the
// records are such an extent. kWithRoom: for checkpoints.
enum class StoreSize : uint8_t { kSmall, kLarge, kFrames, kLargeFrames, kWithRoom };

std::unique_ptr<RecordedRun> store_run(const std::string& scenario, uint64_t seed,
                                       persist::Domain domain, StoreSize size,
                                       const persist::PaddingRules& padding);

}  // namespace pmstore::crash
