// Opened pools of runs that record what a restart does.
#pragma once

#include "persist/internal/catalog.h"
#include "persist/pool.h"

namespace pmstore::crash {

// An opening makes header and table of extents durable, since the process that wrote them may have
// died; a recorder watches only from then on, and would take both for lines in doubt. So the same
// step is repeated for it.
inline Status record_opening(persist::Pool& pool) {
  return persist::internal::Catalog::make_durable(pool.memory(), 0);
}

}  // namespace pmstore::crash
