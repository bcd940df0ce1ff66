// Whether a device pins the memory that is registered with it.
#pragma once

#include "service/service.h"

namespace pmstore::internal {

// Pages that were given back to the system would be pinned no more in the mapping and still by the
// device, which would read the old ones for ever. So do all devices of verbs, also those that a CPU
// plays (Soft-RoCE); the others read through the mapping.
inline bool pins_memory(const service::Endpoint& endpoint) {
  return endpoint.uri.scheme == fabric::Scheme::kVerbs || !endpoint.capabilities.cpu_moves_data;
}

}  // namespace pmstore::internal
