// The reserves and limits that a pool keeps (persist/space_rules.h): every start of a Server goes
// by them, also that of local:PATH; log::EmbeddedLog does not. Programs of releases before them
// open such a pool and ignore them.
//
// Threads: those of the pool. The pool is borrowed for the call.
#pragma once

#include "base/result.h"
#include "persist/pool.h"

namespace pmstore {

struct ServerOptions;

// No rule where the pool keeps none. BadPool: both copies are damaged; keep_space_rules() mends
// that. Stores nothing.
Result<persist::SpaceRules> load_space_rules(persist::Pool& pool);

// Whether a start would accept them. InvalidArgument: SpaceRules::check(), or more is reserved for
// rings than the pool's rings take; BadPool, VersionMismatch: there is no sound catalog.
Status check_space_rules(persist::Pool& pool, const persist::SpaceRules& rules);

// Durable on return; after a crash before it, the pool has the rules of before or these. They hold
// from the next start of a server on. Errors of check_space_rules(); Io.
Status keep_space_rules(persist::Pool& pool, const persist::SpaceRules& rules);

// What the pool keeps, but for what the options say of one run. InvalidArgument, BadPool.
Result<persist::SpaceRules> space_rules_of_run(persist::Pool& pool, const ServerOptions& options);

}  // namespace pmstore
