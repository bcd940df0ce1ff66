// StoreLoad: the operations through the client library: puts and gets of a table, appends to a log.
#pragma once

#include "tests/compare/load.h"

namespace pmstore::compare {

// One thread's share, on an executor of its own. The connections of one executor to one address
// share a socket (docs/fabric-tcp.md); those of two threads do not.
void run_store_load(const LoadOptions& options, uint32_t thread, StartGate& gate, Tally& tally);

}  // namespace pmstore::compare
