// ClientRnicCommit: one commit under lock discipline rnic, the client's side: lock, validate, log
// and commit by one-sided operations on the connection's queue pair. The server's CPU is asked only
// for slots and index changes. docs/transactions.md says why the phases are in this order.
//
// Invariant: from the first reservation until the redo record is durable, or until everything is
// undone, exactly the reserved slots and the words that CommitLocks counts are locked. Once this
// object holds locks, run() must reach its end even if the caller of the commit is destroyed; so
// the owner runs it as a task of CommitTasks. Threads: the executor's. Borrows all but the session.
#pragma once

#include "base/result.h"
#include "base/task.h"
#include "persist/memory.h"
#include "pmstore/client/client_cpu_commit.h"
#include "pmstore/client/client_session.h"
#include "pmstore/client/commit_locks.h"
#include "pmstore/client/commit_redo.h"
#include "pmstore/client/item_set.h"
#include "pmstore/client/participant.h"
#include "pmstore/client/reader.h"
#include "pmstore/client/scan_reads.h"
#include "pmstore/client/slot_reservations.h"
#include "pmstore/client/transaction_numbers.h"

namespace pmstore::internal {

class ClientRnicCommit {
 public:
  struct What {
    TxId id;
    ItemSet& items;
    const ScanReads& scanned;
  };
  ClientRnicCommit(const What& what, Participant& participant, Reader& reader,
                   TransactionNumbers& numbers, CommitParts& parts)
      : id_(what.id),
        items_(what.items),
        scanned_(what.scanned),
        participant_(participant),
        session_(participant.session),
        reader_(reader),
        parts_(parts),
        reservations_(what.id, items_, scanned_, *session_),
        locks_(items_, participant),
        redo_(what.id, items_, participant, numbers) {}
  ClientRnicCommit(const ClientRnicCommit&) = delete;
  ClientRnicCommit& operator=(const ClientRnicCommit&) = delete;
  ~ClientRnicCommit() { locks_.give_buffer_back(); }

  // Success: the transaction is durable; its records may still be on the way to their slots.
  // CommitUnknown: it may be durable, and the session is dropped. Conflict, AlreadyExists,
  // NotFound, TooLarge, Full, Timeout and errors of the connection: nothing happened and nothing
  // stays locked.
  base::Task<Status> run();

 private:
  // Finds the records that are written and were not read.
  base::Task<Status> locate();
  // Sets TxItem::absent_by_call. Asks for regions that validation needs and this client lacks.
  base::Task<Status> choose_validation();
  // Whether what was read in ordered tables, or in buckets that cannot be READ, is unchanged, which
  // the server knows. Requires that every lock is held.
  base::Task<Status> validate_in_order();
  // The same of everything that was read. Requires that no lock is held but of reserved slots.
  base::Task<Status> validate_without_locks();
  // Unlocks and releases everything, unless the session is over: the server does it then.
  base::Task<void> undo();
  // The commit phase. The redo record is durable, so a failure here is not the caller's.
  base::Task<void> finish();

  const TxId id_;
  ItemSet& items_;
  const ScanReads& scanned_;
  Participant& participant_;
  SessionRef session_;
  Reader& reader_;
  CommitParts& parts_;
  SlotReservations reservations_;
  CommitLocks locks_;
  CommitRedo redo_;
};

}  // namespace pmstore::internal
