#include "pmstore/server/commit_group.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "pmstore/layout/protocol.h"
#include "pmstore/server/server_state.h"

namespace pmstore::internal {

namespace {

// What a transaction may meet because another one has locked it, fills its ring, or has slots that
// it gives back when it is in place.
bool may_wait_for_the_group(const Status& status) {
  return !status &&
         (status.code() == ErrorCode::kConflict || status.code() == ErrorCode::kBackPressure ||
          status.code() == ErrorCode::kFull);
}

Error ended_meanwhile() {
  return make_error(ErrorCode::kDisconnected, "the session has ended meanwhile");
}

}  // namespace

WaitingCaller::~WaitingCaller() {
  if (end == nullptr) return;
  end->finish(make_error(ErrorCode::kDisconnected, "the server in this process has ended"));
}

CommitGroup::CommitGroup(ServerCore& core) : core_(core), wake_(core.executor) {
  waiting_.reserve(kMost);
}

bool CommitGroup::shares_drains() const {
  return core_.pool.memory().domain() == persist::Domain::kNone &&
         usual_drain_ns() >= core_.options.group_above_ns;
}

void CommitGroup::note_drain(uint64_t ns) { earlier_drain_ns_ = std::exchange(last_drain_ns_, ns); }

Status CommitGroup::commit_alone(const CommitView& request) {
  PMSTORE_CHECK(waiting_.empty(), "its drain would leave the group's transactions unanswered");
  Store& store = *core_.store;
  const bool by_msync = store.memory().domain() == persist::Domain::kNone;
  if (!by_msync || request.write_count == 0) return store.commit(request);
  // Reading the clock would cost a few per cent of a commit on tmpfs.
  constexpr uint64_t kQuickPerMeasured = 16;
  const bool quick = last_drain_ns_ < core_.options.group_above_ns;
  if (quick && quick_commits_++ % kQuickPerMeasured != 0) return store.commit(request);
  const uint64_t began_ns = core_.executor.now_ns();
  Status committed = store.commit(request);
  if (committed) note_drain(core_.executor.now_ns() - began_ns);
  return committed;
}

// A transaction that only reads has nothing to log.
Status CommitGroup::join(const CommitView& request) {
  return request.write_count == 0 ? core_.store->commit(request) : core_.store->join_group(request);
}

std::optional<Status> CommitGroup::commit(Session& session, const CommitView& request) {
  if (waiting_.empty() && !shares_drains()) return commit_alone(request);
  const std::shared_ptr<Session> keep = core_.places[session.place].session;
  if (waiting_.size() >= kMost) finish();
  if (keep->ended) return ended_meanwhile();
  Status joined = join(request);
  if (may_wait_for_the_group(joined) && finish()) {
    if (keep->ended) return ended_meanwhile();
    joined = join(request);
  }
  if (!joined || request.write_count == 0) return joined;
  return std::nullopt;
}

std::optional<Status> CommitGroup::step(Session& session, const std::function<Status()>& begin) {
  Store& store = *core_.store;
  const std::shared_ptr<Session> keep = core_.places[session.place].session;
  if (waiting_.size() >= kMost) finish();
  if (keep->ended) return ended_meanwhile();
  Status begun = begin();
  if (may_wait_for_the_group(begun) && finish()) {
    if (keep->ended) return ended_meanwhile();
    begun = begin();
  }
  if (!begun || store.group_size() == waiting_.size()) return begun;
  if (!waiting_.empty() || shares_drains()) return std::nullopt;
  const auto logged = drain();
  return logged ? Status() : Status(logged.error());
}

void CommitGroup::wait_for_the_drain(std::shared_ptr<Session> session, CommitCaller caller,
                                     GroupStep step) {
  if (!std::exchange(started_, true)) core_.run(finish_groups());
  count_member(*session);
  waiting_.push_back({std::move(session), std::move(caller), step});
  PMSTORE_CHECK(waiting_.size() == core_.store->group_size(),
                "each transaction that is logged is answered");
  wake_.notify_one();
}

void CommitGroup::count_member(Session& session) {
  if (session.group == number_) return;
  returned_ += session.group + 1 == number_ ? 1 : 0;
  session.group = number_;
  ++members_;
}

void CommitGroup::begin_next_group() {
  PMSTORE_CHECK(returned_ <= members_, "who has returned is here");
  expected_ = members_ + earlier_members_ - std::min(returned_, earlier_members_);
  earlier_members_ = members_;
  members_ = returned_ = 0;
  ++number_;
}

// Runs until it is destroyed with the core's tasks.
base::Task<void> CommitGroup::finish_groups() {
  while (true) {
    if (waiting_.empty()) {
      co_await wake_.wait();
      continue;
    }
    co_await wait_for_company();
    finish();
  }
}

// Clients that were answered a moment ago are on their way back while others wait already: without
// the second wait each group would have half of them. Who waits alone does not wait for company.
base::Task<void> CommitGroup::wait_for_company() {
  base::Executor& executor = core_.executor;
  for (size_t seen = 1; waiting_.size() > seen;) {
    seen = waiting_.size();
    co_await executor.yield();
  }
  constexpr uint64_t kShareOfADrain = 16;
  constexpr uint64_t kLooks = 8;
  const uint64_t longest_ns = usual_drain_ns() / kShareOfADrain;
  const uint64_t until_ns = executor.now_ns() + longest_ns;
  while (!waiting_.empty() && waiting_.size() < kMost && members_ < expected_ &&
         executor.now_ns() < until_ns) {
    co_await executor.sleep_for(longest_ns / kLooks + 1);
  }
}

Result<persist::Persisted> CommitGroup::drain() {
  const uint64_t began_ns = core_.executor.now_ns();
  const uint64_t earlier_msyncs = core_.store->memory().stats().msyncs;
  auto logged = core_.store->finish_group();
  // The logs of the pool may have had an msync meanwhile, and left nothing to do.
  if (core_.store->memory().stats().msyncs != earlier_msyncs) {
    note_drain(core_.executor.now_ns() - began_ns);
  }
  return logged;
}

bool CommitGroup::finish() {
  if (waiting_.empty()) return false;
  PMSTORE_CHECK(waiting_.size() == core_.store->group_size(),
                "each transaction that is logged is answered");
  // An answer may end a session, and its end finishes the group: the next one.
  std::vector<Waiting> group;
  group.reserve(kMost);
  group.swap(waiting_);
  begin_next_group();
  const auto logged = drain();
  ++counters_.groups;
  counters_.transactions += group.size();
  counters_.largest = std::max<uint64_t>(counters_.largest, group.size());
  for (Waiting& waiting : group) {
    if (logged) {
      acknowledge(*logged, waiting);
    } else {
      answer(waiting, logged.error());
    }
  }
  core_.look_for_failure();
  return true;
}

// `logged` proves that the redo records of its group are durable.
void CommitGroup::acknowledge(persist::Persisted /*logged*/, Waiting& waiting) {
  answer(waiting, {});
}

void CommitGroup::answer(Waiting& waiting, const Status& committed) {
  if (auto* const call = std::get_if<fabric::RpcCall>(&waiting.caller)) {
    if (waiting.step != GroupStep::kTransaction) {
      return core_.answer_step(*waiting.session, *call, waiting.step, committed);
    }
    return core_.answer_commit(*waiting.session, *call, committed);
  }
  core_.count_commit(*waiting.session, committed);
  CommitEnd* const end = std::get<std::unique_ptr<WaitingCaller>>(waiting.caller)->end;
  if (end != nullptr) end->finish(committed);
}

}  // namespace pmstore::internal
