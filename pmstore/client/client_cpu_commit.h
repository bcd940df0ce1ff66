// Commit under lock discipline cpu, the client's side: one kCommit request. The server locks,
// validates, logs and applies (pmstore/shard has its side).
//
// Threads: the executor's. `items` and `session` are borrowed until the task ends; `scratch` until
// its first suspension, because an RPC call copies its request. Each task may be destroyed at any
// moment: the number of its transaction is then in doubt.
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"
#include "base/task.h"
#include "pmstore/client/client_session.h"
#include "pmstore/client/item_set.h"
#include "pmstore/client/transaction_numbers.h"

namespace pmstore::internal {

// Success: the transaction is durable. CommitUnknown: it may be; outcome() tells. TooLarge, when
// the request does not fit `scratch`, and every other error: nothing happened.
base::Task<Status> commit_by_rpc(TxId id, const ItemSet& items, ClientSession& session,
                                 std::span<std::byte> scratch, TransactionNumbers& numbers);

// Asks the server whether everything that `items` have read is unchanged, and writes nothing.
// Conflict when it is not.
base::Task<Status> validate_by_rpc(const ItemSet& items, ClientSession& session,
                                   std::span<std::byte> scratch);

}  // namespace pmstore::internal
