// keep_lease: says now and then that a session of the log service is there.
#pragma once

#include <cstdint>

#include "base/executor.h"
#include "fabric/connection.h"
#include "fabric/rpc.h"

namespace pmstore::log::internal {

// Sends a ping whenever `interval_ns` passed without a request; ends when the connection has
// broken, which the next call or append reports. Borrows all three: destroy the task before them.
base::Task<void> keep_lease(base::Executor& executor, const fabric::Connection& connection,
                            fabric::RpcClient& rpc, uint64_t interval_ns);

}  // namespace pmstore::log::internal
