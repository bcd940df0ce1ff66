#include "tools/mount/operations.h"

#include <algorithm>
#include <utility>

namespace pmstore::tools {

Operations::~Operations() { give_up_all(); }

void Operations::give_up_all() {
  finished_.clear();
  running_.clear();
  interrupted_ = 0;
  next_due_ns_ = base::Poller::kNoEvent;
}

base::Task<void> Operations::run(Operations& owner, Operation& operation, base::Task<void> body) {
  co_await std::move(body);
  owner.finished_.push_back(&operation);  // its frame is still running: reap() ends it
}

void Operations::start(fuse_req_t request, base::Task<void> body, uint64_t patience_ns) {
  Operation& operation = running_.emplace_back();
  operation.owner = this;
  operation.patience_ns = patience_ns;
  operation.position = std::prev(running_.end());
  // Before it runs: what has been answered has no request any more.
  fuse_req_interrupt_func(request, on_interrupt, &operation);
  operation.task = run(*this, operation, std::move(body));
  operation.task.start();
  if (!operation.task.done()) return;
  PMSTORE_CHECK(finished_.back() == &operation, "what is done has said so last");
  finished_.pop_back();
  if (operation.interrupted_ns != 0) --interrupted_;
  running_.erase(operation.position);
}

// libfuse calls this while it reads the kernel's interrupt; it answers nothing here, because
// libfuse holds the request's lock.
void Operations::on_interrupt(fuse_req_t, void* data) {
  Operation& operation = *static_cast<Operation*>(data);
  Operations& owner = *operation.owner;
  if (operation.interrupted_ns != 0) return;
  operation.interrupted_ns = std::max<uint64_t>(owner.executor_.now_ns(), 1);
  ++owner.interrupted_;
  owner.next_due_ns_ =
      std::min(owner.next_due_ns_, operation.interrupted_ns + operation.patience_ns);
}

size_t Operations::reap(bool may_give_up) {
  size_t ended = 0;
  for (Operation* const operation : std::exchange(finished_, {})) {
    if (operation->interrupted_ns != 0) --interrupted_;
    running_.erase(operation->position);
    ++ended;
  }
  if (interrupted_ == 0) {
    next_due_ns_ = base::Poller::kNoEvent;
  } else if (may_give_up && executor_.now_ns() >= next_due_ns_) {
    ended += give_up_interrupted();
  }
  return ended;
}

size_t Operations::give_up_interrupted() {
  const uint64_t now_ns = executor_.now_ns();
  size_t ended = 0;
  next_due_ns_ = base::Poller::kNoEvent;
  for (auto next = running_.begin(); next != running_.end();) {
    const auto operation = next++;
    if (operation->interrupted_ns == 0) continue;
    const uint64_t due_ns = operation->interrupted_ns + operation->patience_ns;
    if (now_ns < due_ns) {
      next_due_ns_ = std::min(next_due_ns_, due_ns);
      continue;
    }
    --interrupted_;
    ++ended;
    running_.erase(operation);
  }
  return ended;
}

}  // namespace pmstore::tools
