#include "pmstore/client/settled_buffer.h"

#include "base/result.h"
#include "base/task.h"

namespace pmstore::internal {
namespace {

// Waits for the end of batches that were posted without a completion: they are over when a later
// one of their connection is.
base::Task<void> settle(CommitTasks& tasks, SessionRef session, BufferLease lease) {
  const CommitTasks::Position here = tasks.started_last();
  {
    const BufferLease buffer = std::move(lease);
    buffer->batch.clear();
    buffer->batch.read(buffer->word_at(0), session->word_at(SlotOffset{0}));
    // An error is one of the connection, which then reaches no buffer any more.
    const Status read =
        co_await session->execute_after(make_error(ErrorCode::kBackPressure), *buffer);
    static_cast<void>(read);
  }
  tasks.ended(here);
}

}  // namespace

SettledBuffer::~SettledBuffer() {
  if (!buffer_->unsignaled || !session_->usable()) return;
  tasks_.run(settle(tasks_, session_, std::move(buffer_)));
}

}  // namespace pmstore::internal
