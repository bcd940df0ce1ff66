// Transactions of one write.
#pragma once

#include <string_view>

#include "base/result.h"
#include "base/task.h"
#include "pmstore/client.h"
#include "pmstore/client/connector.h"
#include "pmstore/client/transaction_numbers.h"
#include "pmstore/layout/protocol.h"

namespace pmstore::internal {

// Put, insert or erase, durable on success. Under lock discipline cpu it is one call of the server:
// one RPC, or nothing of the fabric in process. Under rnic it is a transaction, tried again on
// Conflict. Errors as Transaction::commit(). `key` and `value` are borrowed until the task ends.
// The parts are those of `client`.
base::Task<Status> write_one(Client& client, Connector& connector, TransactionNumbers& numbers,
                             WriteKind kind, TableId table, std::string_view key,
                             std::string_view value);

}  // namespace pmstore::internal
