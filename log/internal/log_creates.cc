#include "log/internal/log_creates.h"

#include <utility>

#include "base/check.h"
#include "persist/zero_ahead.h"

namespace pmstore::log::internal {

LogCreates::LogCreates(base::Executor& executor, LogStore& store, Answer answer)
    : executor_(executor), store_(store), answer_(std::move(answer)), wake_(executor) {
  serving_ = serve();
  serving_.start();
}

void LogCreates::ask(service::Session& session, fabric::RpcCall call, Request request) {
  PMSTORE_CHECK(!session.ended, "a session that has ended sends nothing");
  ++session.active;
  asked_.push_back({session.shared_from_this(), std::move(call), std::move(request)});
  wake_.notify_one();
}

base::Task<void> LogCreates::serve() {
  for (;;) {
    while (asked_.empty()) co_await wake_.wait();
    Asked asked = std::move(asked_.front());
    asked_.pop_front();
    service::Session& session = *asked.session;
    const Result<LogInfo> made = co_await make(session, asked.request);
    PMSTORE_CHECK(session.active > 0, "each request is counted once");
    --session.active;
    answer_(session, asked.call, made);
  }
}

base::Task<Result<LogInfo>> LogCreates::make(const service::Session& session,
                                             const Request& request) {
  const Status ready = co_await prepare(session, request);
  if (ready) co_return store_.create(request.name, request.options, request.replica);
  // An error of this is the next one's, too.
  if (const Status ended = store_.end_preparing(); !ended) co_return ended.error();
  co_return ready.error();
}

// Disconnected: the session has ended meanwhile.
base::Task<Status> LogCreates::prepare(const service::Session& session, const Request& request) {
  const uint64_t part_bytes = persist::zeroed_at_a_time(store_.memory().domain());
  for (;;) {
    if (session.ended) {
      co_return make_error(ErrorCode::kDisconnected, "the session has ended");
    }
    const auto more = store_.prepare(request.name, request.options, request.replica, part_bytes);
    if (!more) co_return more.error();
    if (!*more) co_return Status{};
    co_await executor_.yield();  // answers go first
  }
}

}  // namespace pmstore::log::internal
