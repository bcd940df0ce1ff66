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

base::Task<Status> Connection::retry_while_full(Connection& connection, uint64_t timeout_ns,
                                                Status (*try_post)(void* context), void* context) {
  base::Executor& executor = connection.executor_;
  const internal::DestructionWatch watch(connection.lifetime_);
  const uint64_t give_up_ns = executor.now_ns() + timeout_ns;
  while (executor.now_ns() < give_up_ns) {
    co_await executor.sleep_for(kRoomPollNs);
    if (watch.destroyed()) {
      co_return make_error(ErrorCode::kDisconnected,
                           "the connection was closed before its send queue had room");
    }
    Status posted = try_post(context);
    if (!is_full(posted)) co_return posted;
  }
  co_return make_error(ErrorCode::kTimeout,
                       "the send queue stayed full, nothing was sent: keep fewer requests in "
                       "flight at a time");
}

}  // namespace pmstore::fabric
