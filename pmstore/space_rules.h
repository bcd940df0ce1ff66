// Reserves and limits of a pool with a store: what a start would accept, and what holds in one run.
// What a pool keeps, and who goes by it: persist/kept_space_rules.h.
//
// Threads: those of the pool. The pool is borrowed for the call.
#pragma once

#include "base/result.h"
#include "persist/pool.h"

namespace pmstore {

struct ServerOptions;

// Whether a start would accept them. InvalidArgument: SpaceRules::check(), or more is reserved for
// rings than the pool's rings take; BadPool, VersionMismatch: there is no sound catalog.
Status check_space_rules(persist::Pool& pool, const persist::SpaceRules& rules);

// Durable on return; after a crash before it, the pool has the rules of before or these. They hold
// from the next start of a server on. Errors of check_space_rules(); Io.
Status keep_space_rules(persist::Pool& pool, const persist::SpaceRules& rules);

// What the pool keeps, but for what the options say of one run. InvalidArgument, BadPool.
Result<persist::SpaceRules> space_rules_of_run(persist::Pool& pool, const ServerOptions& options);

}  // namespace pmstore
