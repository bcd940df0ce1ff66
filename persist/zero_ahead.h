// How a server zeroes space ahead of what will lie there, without keeping others waiting.
#pragma once

#include <cstdint>

#include "persist/domain.h"

namespace pmstore::persist {

// In one turn of an executor that serves others: some 0.2 ms of processor time, page faults
// included. Where turns wait for a disk anyway there are fewer of them, of 0.8 ms.
constexpr uint64_t zeroed_at_a_time(Domain domain) {
  return domain == Domain::kNone ? 2 << 20 : 512 << 10;
}

}  // namespace pmstore::persist
