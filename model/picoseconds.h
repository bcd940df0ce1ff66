// Picoseconds: the unit of modelled time. Parameters are in ns; integers of ps keep sums exact and
// alike on every host, and last for half a year of modelled time. Threads: plain values.
#pragma once

#include <cstdint>

namespace pmstore::model {

constexpr uint64_t to_ps(double ns) { return static_cast<uint64_t>(ns * 1000 + 0.5); }

}  // namespace pmstore::model
