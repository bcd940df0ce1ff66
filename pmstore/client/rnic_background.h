// What goes on under lock discipline rnic after a commit has been acknowledged, or beside it.
//
// Each holds its session for as long as it takes. A failure is never the caller's: the transaction
// is committed, and the server finishes it from the redo ring once it has fenced the session.
#pragma once

#include <cstdint>
#include <vector>

#include "base/task.h"
#include "pmstore/client/client_session.h"

namespace pmstore::internal {

// A session and one of its buffers, released in the right order.
struct SessionBuffer {
  SessionRef session;
  BufferLease buffer;
};

// Waits for the doorbell that wrote the records in place and unlocked them, `buffer->batch`.
base::Task<void> finish_in_place(SessionBuffer held, RedoRing::Ticket ticket);

// Has the server apply the entry at `lsn` and unlock. When it cannot, the session is given up.
base::Task<void> apply_logged(SessionRef session, uint64_t lsn, RedoRing::Ticket ticket);

// Makes room in the redo ring. Waits for a truncation that is under way instead of starting
// another.
base::Task<void> truncate_ring(SessionRef session);

}  // namespace pmstore::internal
