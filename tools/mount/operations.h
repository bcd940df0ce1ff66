// Operations: the requests of the kernel that are being answered, each a coroutine.
//
// An interrupted operation (a signal for the program that waits) has kPatienceNs to end by itself:
// programs do not expect EINTR from a file system that answers. After that it is given up, which
// its Request answers with EINTR. It happened or it did not happen, as when a client is killed.
// Invariant: every operation is in running_ from start() until it is reaped.
// Threads: one. Lifetimes: the executor outlives it.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <vector>

#include "base/executor.h"
#include "base/task.h"
#include "tools/mount/fuse.h"

namespace pmstore::tools {

class Operations {
 public:
  static constexpr uint64_t kPatienceNs = 2'000'000'000;

  explicit Operations(base::Executor& executor) : executor_(executor) {}
  ~Operations();
  Operations(const Operations&) = delete;
  Operations& operator=(const Operations&) = delete;

  // `body` answers `request`. It runs until its first suspension here. What waits for another
  // program has no patience: it is given up as soon as it is interrupted.
  void start(fuse_req_t request, base::Task<void> body, uint64_t patience_ns = kPatienceNs);
  size_t running() const { return running_.size(); }

  // Ends what has finished and gives up what was interrupted long enough ago, unless
  // `may_give_up` is false. The number of both.
  size_t reap(bool may_give_up);
  bool has_finished() const { return !finished_.empty(); }
  // When reap() has something to give up; Poller::kNoEvent: never.
  uint64_t next_due_ns() const { return next_due_ns_; }
  // Destroys all operations.
  void give_up_all();

 private:
  struct Operation {
    Operations* owner = nullptr;
    base::Task<void> task;
    uint64_t patience_ns = 0;
    uint64_t interrupted_ns = 0;  // 0: it is not
    std::list<Operation>::iterator position;
  };
  static base::Task<void> run(Operations& owner, Operation& operation, base::Task<void> body);
  static void on_interrupt(fuse_req_t request, void* operation);
  size_t give_up_interrupted();

  base::Executor& executor_;
  std::list<Operation> running_;
  std::vector<Operation*> finished_;
  size_t interrupted_ = 0;
  uint64_t next_due_ns_ = base::Poller::kNoEvent;
};

}  // namespace pmstore::tools
