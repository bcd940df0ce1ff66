// The probe of a pool: whether a client may reach it, without a change to it.
#pragma once

#include "base/result.h"
#include "base/task.h"
#include "pmstore/client.h"
#include "pmstore/client/connector.h"
#include "pmstore/client/transaction_numbers.h"

namespace pmstore::internal {

// See Client::probe(). Borrows both until the task ends.
base::Task<Result<PoolProbe>> probe_pool(Connector& connector, const TransactionNumbers& numbers);

}  // namespace pmstore::internal
