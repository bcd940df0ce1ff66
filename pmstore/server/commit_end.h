// CommitEnd: the result of one commit, in the frame of the coroutine that waits for it.
//
// What ends the commit runs elsewhere: a task of the client (CommitTasks), or the server's group
// (CommitGroup). It and the waiting frame find each other through a pointer; each may be destroyed
// first. Threads: the executor's.
#pragma once

#include <coroutine>
#include <utility>

#include "base/check.h"
#include "base/executor.h"
#include "base/result.h"

namespace pmstore::internal {

class CommitEnd {
 public:
  // `registration` points to this object until the commit has finished. It outlives this object.
  CommitEnd(CommitEnd*& registration, Executor& executor)
      : registration_(&registration), executor_(executor) {
    PMSTORE_CHECK(registration == nullptr, "one coroutine waits for a commit");
    registration = this;
  }
  CommitEnd(const CommitEnd&) = delete;
  CommitEnd& operator=(const CommitEnd&) = delete;
  ~CommitEnd() {
    if (registration_ != nullptr) *registration_ = nullptr;
    if (posted_) executor_.forget(waiter_);
  }

  // The commit has ended with `status`. Ends the registration.
  void finish(Status status) {
    PMSTORE_CHECK(registration_ != nullptr, "a commit finishes once");
    *std::exchange(registration_, nullptr) = nullptr;
    status_ = std::move(status);
    posted_ = static_cast<bool>(waiter_);
    // Not resumed here: the waiter may destroy the client, and with it the commit that is ending.
    if (posted_) executor_.post(waiter_);
  }

  bool await_ready() const { return registration_ == nullptr; }
  void await_suspend(std::coroutine_handle<> waiter) { waiter_ = waiter; }
  Status await_resume() {
    PMSTORE_CHECK(registration_ == nullptr, "the commit has finished");
    posted_ = false;
    return std::move(status_);
  }

 private:
  CommitEnd** registration_;  // nullptr once the commit has finished
  Executor& executor_;
  std::coroutine_handle<> waiter_;
  bool posted_ = false;
  Status status_;
};

}  // namespace pmstore::internal
