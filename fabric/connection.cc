#include "fabric/connection.h"

namespace pmstore::fabric {

base::Task<Status> Connection::wait(std::span<Completion* const> completions) {
  ++counters_.round_trips;
  bool ok = true;
  for (Completion* completion : completions) {
    CompletionAwaiter completed(*completion);
    ok &= co_await completed;
  }
  if (!ok) co_return why_broken_;
  co_return Status{};
}

}  // namespace pmstore::fabric
