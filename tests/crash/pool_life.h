// The life of a pool in a plain region: formatted, extents allocated, processes that die.
//
//   pool   under ADR
// Seed 0 is a script; others are drawn.
#pragma once

#include <cstdint>
#include <memory>

#include "tests/crash/life.h"

namespace pmstore::crash {

std::unique_ptr<Life> pool_life(const std::string& scenario, uint64_t seed, persist::Domain domain);

}  // namespace pmstore::crash
