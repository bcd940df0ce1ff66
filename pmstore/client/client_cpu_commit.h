// Commit under lock discipline cpu, the client's side: one call. The server locks, validates, logs
// and applies (pmstore/shard has its side).
//
// Threads: the executor's. `items` and `session` are borrowed until the task ends; `parts` until
// its first suspension. Each task may be destroyed at any moment: the number of its transaction is
// then in doubt.
#pragma once

#include <vector>

#include "base/result.h"
#include "base/task.h"
#include "pmstore/client/client_session.h"
#include "pmstore/client/item_set.h"
#include "pmstore/client/scan_reads.h"
#include "pmstore/client/transaction_numbers.h"
#include "pmstore/layout/protocol.h"
#include "pmstore/shard/commit_view.h"

namespace pmstore::internal {

// Memory to lay out a transaction for a call, which takes what it needs before it suspends. One is
// enough for all coroutines of a client.
struct CommitParts {
  std::vector<ReadCheck> reads;
  std::vector<AbsenceCheck> absences;
  std::vector<CommitWrite> writes;
};

// What `items` and `scanned` say, with views into `items` and `parts`.
CommitView view_of(TxId id, const ItemSet& items, const ScanReads& scanned, bool with_writes,
                   CommitParts& parts);

// Success: the transaction is durable. CommitUnknown: it may be; outcome() tells. After every other
// error nothing happened; TooLarge also when it does not fit in a message.
base::Task<Status> commit_by_call(TxId id, const ItemSet& items, const ScanReads& scanned,
                                  ClientSession& session, CommitParts& parts,
                                  TransactionNumbers& numbers);

// Asks the server whether everything that `items` have read, and scans have seen, is unchanged, and
// writes nothing. Conflict when it is not. Under lock discipline rnic, keys that transaction `id`
// has reserved do not count as changes.
base::Task<Status> validate_by_call(TxId id, const ItemSet& items, const ScanReads& scanned,
                                    ClientSession& session, CommitParts& parts);

}  // namespace pmstore::internal
