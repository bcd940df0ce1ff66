// The reserves and limits that a pool keeps (persist/space_rules.h), in its root area
// (persist/space_layout.h): every start of a Server goes by them, also that of local:PATH, and
// log::EmbeddedLog does. Programs of releases before them open such a pool and ignore them.
//
// Threads: those of the pool. The pool is borrowed for the call.
#pragma once

#include "base/result.h"
#include "persist/pool.h"

namespace pmstore::persist {

// No rule where the pool keeps none. BadPool: both copies are damaged; write_space_rules() mends
// that. Stores nothing.
Result<SpaceRules> load_space_rules(Pool& pool);

// Durable on return; after a crash before it, the pool has the rules of before or these. They hold
// from the next start on. What the pool is for may allow less: pmstore/space_rules.h asks first.
// InvalidArgument: SpaceRules::check(); Io.
Status write_space_rules(Pool& pool, const SpaceRules& rules);

}  // namespace pmstore::persist
