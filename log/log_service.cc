// Of LogService: group commit. Sessions are in log_service_calls.cc, producers in log_producers.cc.
#include "log/log_service.h"

#include "base/check.h"
#include "log/internal/log_service_state.h"

namespace pmstore::log {
namespace internal {
namespace {

constexpr size_t kMaxGroup = 1024;  // appends that wait for one drain

}  // namespace

AppendGroup::AppendGroup(base::Executor& executor, LogStore& store, LogSessions& sessions)
    : store_(store), sessions_(sessions), wake_(executor) {
  committing_ = commit_groups();
  committing_.start();
}

// Runs until it is destroyed with the group.
base::Task<void> AppendGroup::commit_groups() {
  while (true) {
    if (waiting_.empty()) co_await wake_.wait();
    commit();
  }
}

void AppendGroup::commit() {
  if (waiting_.empty()) return;
  Waiting group;
  group.swap(waiting_);  // an answer may end a session, which commits the group: the next one
  const auto durable = store_.commit_appends();
  ++commits_;
  if (durable) return acknowledge(*durable, group);
  for (Append& each : group) each.call.reply_error(durable.error());
  sessions_.tell_failure(durable.error());
}

void AppendGroup::acknowledge(persist::Persisted /*appends*/, Waiting& group) {
  PMSTORE_CHECK(!group.empty() && group.size() <= kMaxGroup, "the group is bounded");
  // An answer may end a session, whose client asks again.
  for (const Append& each : group) {
    sessions_.appends().executed(each.name.origin, each.name.number, each.reply);
  }
  for (Append& each : group) each.call.reply(service::bytes_of(each.reply));
}

void AppendGroup::join(fabric::RpcCall call, AppendName name, const AppendReply& reply) {
  waiting_.push_back({std::move(call), name, reply});
  if (waiting_.size() >= kMaxGroup) {
    commit();
  } else {
    wake_.notify_one();
  }
}

}  // namespace internal

LogService::LogService(base::Executor& executor, LogStore& store, size_t max_sessions)
    : state_(std::make_unique<State>(executor, store, max_sessions)) {}
LogService::~LogService() = default;

void LogService::serve(service::Host& host) {
  host.add(state_->sessions);
  host.add(state_->producers);
}

LogServiceCounters LogService::counters() const {
  const service::ServiceCounters& sessions = state_->sessions.counters();
  const service::ServiceCounters& producers = state_->producers.counters();
  LogServiceCounters all;
  all.sessions = sessions.sessions;
  all.producers = producers.sessions;
  all.fenced = state_->producers.fenced();
  all.shared_appends = state_->sessions.appended();
  all.group_commits = state_->sessions.group().commits();
  all.malformed = sessions.malformed + producers.malformed;
  for (const internal::LogRegions* const regions : state_->sessions.regions()) {
    all.extents_registered += regions->registered();
    all.extents_refused += regions->refused();
  }
  return all;
}

}  // namespace pmstore::log
