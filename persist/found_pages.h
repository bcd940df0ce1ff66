// make_dirty_again(): for bytes that a restart has found in memory of no persistence domain.
//
// An msync may have failed before the process ended. The kernel then takes the lost pages for
// clean, and an msync of the next process writes nothing and succeeds. So whoever makes durable
// what was found first makes its pages dirty.
#pragma once

#include <cstddef>
#include <cstdint>

#include "persist/memory.h"

namespace pmstore::persist {

// Changes no byte. `from` lies in `memory` (CHECK). No effect outside Domain::kNone.
void make_dirty_again(const Memory& memory, std::byte* from, uint64_t bytes);

}  // namespace pmstore::persist
