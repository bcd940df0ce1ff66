// Reserves and limits of a pool with a store: what a start would accept, and what holds in one run.
// What a pool keeps, and who goes by it: persist/kept_space_rules.h.
//
// Threads: those of the pool. The pool is borrowed for the call.
#pragma once

#include <optional>
#include <string>

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

// What the pool keeps, but for what the options say of one run. A start goes by it: of a reserve
// for rings that the pool keeps, and that is more than they take, only what they take counts
// (excess_ring_reserve()). InvalidArgument: the options do not fit together, or to what the pool
// keeps; BadPool, VersionMismatch.
Result<persist::SpaceRules> space_rules_of_run(persist::Pool& pool, const ServerOptions& options);

// One line for those who run the pool, when it keeps a reserve for rings that is more than they
// take, as programs of before have accepted it; nullopt: it does not. BadPool, VersionMismatch.
Result<std::optional<std::string>> excess_ring_reserve(persist::Pool& pool);

}  // namespace pmstore
