// Landed: waits for a completion that may outlive the frame which waits.
#pragma once

#include <coroutine>

#include "fabric/connection.h"

namespace pmstore::log::internal {

struct Landed {
  explicit Landed(fabric::Completion& of) : completion(of) {}
  Landed(const Landed&) = delete;
  Landed& operator=(const Landed&) = delete;
  ~Landed() {
    if (waiting) completion.set_waiter({});
  }
  bool await_ready() const { return completion.done(); }
  void await_suspend(std::coroutine_handle<> waiter) {
    waiting = true;
    completion.set_waiter(waiter);
  }
  void await_resume() { waiting = false; }

  fabric::Completion& completion;
  bool waiting = false;
};

}  // namespace pmstore::log::internal
