// SettledBuffer: the buffer of an operation that posts several batches, all but the last of them
// without a completion.
//
// When the operation is destroyed between two batches, the buffer is given back only behind their
// end. Invariant: a buffer that is given back to its pool has no unsignaled work under way, while
// its session is usable. Threads: the executor's. The tasks outlive it.
#pragma once

#include <utility>

#include "pmstore/client/buffer_pool.h"
#include "pmstore/client/client_session.h"
#include "pmstore/client/commit_tasks.h"

namespace pmstore::internal {

class SettledBuffer {
 public:
  SettledBuffer(CommitTasks& tasks, SessionRef session, BufferLease buffer)
      : tasks_(tasks), session_(std::move(session)), buffer_(std::move(buffer)) {}
  SettledBuffer(const SettledBuffer&) = delete;
  SettledBuffer& operator=(const SettledBuffer&) = delete;
  ~SettledBuffer();
  OpBuffer& operator*() const { return *buffer_; }

 private:
  CommitTasks& tasks_;
  SessionRef session_;
  BufferLease buffer_;
};

}  // namespace pmstore::internal
