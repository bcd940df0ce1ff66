#include "fabric/connection.h"

namespace pmstore::fabric {

namespace {

struct CompletionAwaiter {
  Completion& completion;
  bool await_ready() const { return completion.done(); }
  void await_suspend(std::coroutine_handle<> waiter) { completion.set_waiter(waiter); }
  void await_resume() const {}
};

}  // namespace

base::Task<Status> Connection::wait(std::span<Completion* const> completions) {
  ++counters_.round_trips;
  bool ok = true;
  for (Completion* completion : completions) {
    CompletionAwaiter awaiter{*completion};
    co_await awaiter;
    ok &= completion->ok();
  }
  if (!ok) co_return why_broken_;
  co_return Status{};
}

}  // namespace pmstore::fabric
