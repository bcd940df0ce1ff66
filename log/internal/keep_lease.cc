#include "log/internal/keep_lease.h"

#include <utility>

#include "log/log_protocol.h"

namespace pmstore::log::internal {

base::Task<void> keep_lease(base::Executor& executor, const fabric::Connection& connection,
                            fabric::RpcClient& rpc, uint64_t interval_ns) {
  uint64_t sent = 0;
  while (true) {
    co_await executor.sleep_for(interval_ns);
    if (connection.broken() || rpc.failed()) co_return;
    // Only requests count: the server does not see one-sided operations.
    const uint64_t& now_sent = connection.counters().server_messages;
    if (std::exchange(sent, now_sent) != now_sent) continue;
    const auto pong = co_await rpc.call(static_cast<uint16_t>(LogMethod::kPing), {}, 0);
    static_cast<void>(pong);  // who calls or appends next is told what has happened
    sent = now_sent;
  }
}

}  // namespace pmstore::log::internal
