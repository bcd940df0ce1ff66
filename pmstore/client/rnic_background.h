// Work of lock discipline rnic that goes on after a commit was acknowledged, or beside it.
//
// Each task holds its session until it ends. A failure is never the caller's: the transaction is
// committed, and the server finishes it from the redo ring once it has fenced the session. The
// session counts the tasks that run (ClientSession::passive), so that an orderly end waits for
// them. Threads: the executor's.
#pragma once

#include <cstdint>

#include "base/task.h"
#include "persist/memory.h"
#include "pmstore/client/client_session.h"

namespace pmstore::internal {

// A session and one of its buffers. The buffer is given back before the session is released.
struct SessionBuffer {
  SessionRef session;
  BufferLease buffer;
};

// Waits for the doorbell that writes the records in place and unlocks them, `buffer->batch`, and
// reports the commit phase of `ticket` as done. When it fails, the session is dropped.
base::Task<void> finish_in_place(SessionBuffer held, RedoRing::Ticket ticket);

// Has the server apply the entry at `lsn`, which is durable, and unlock its records. When that
// fails, the session is dropped.
base::Task<void> apply_logged(persist::Persisted logged, SessionRef session, uint64_t lsn,
                              RedoRing::Ticket ticket);

// Makes room in the redo ring: one truncation up to RedoRing::done_through_lsn(). Waits for a
// truncation that is under way instead of starting another.
base::Task<void> truncate_ring(SessionRef session);

}  // namespace pmstore::internal
