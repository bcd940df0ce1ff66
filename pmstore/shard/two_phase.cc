#include "pmstore/shard/two_phase.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "pmstore/shard/session_numbers.h"

namespace pmstore::internal {

namespace {

Error too_many() {
  return make_error(ErrorCode::kBackPressure,
                    "too many transactions of several servers are not decided here; try again, or "
                    "settle them");
}

Error too_many_of_client() {
  return make_error(ErrorCode::kBackPressure,
                    "this client has as many transactions of several servers here that are not "
                    "decided as one may have (" +
                        std::to_string(TwoPhase::kMostOfClient) +
                        "); wait until some have ended, or settle them");
}

Error too_many_committed() {
  return make_error(ErrorCode::kBackPressure,
                    "too many commits of several servers are remembered here, because their "
                    "clients have not said that every server has them; settle them");
}

Error not_here(TxId id, const char* what) {
  return make_error(ErrorCode::kNotFound, "transaction " + id.to_string() + " is not " + what +
                                              " here; it was aborted, or decided before");
}

bool same_session(TxId one, TxId other) {
  return one.client == other.client && session_of(one.sequence) == session_of(other.sequence);
}

}  // namespace

// ---- recovery ----

Status TwoPhase::restore() {
  PMSTORE_CHECK(transactions_.empty(), "a store is recovered once");
  for (const TxId id : log_.pinned_transactions()) {
    PMSTORE_TRY_STATUS(take_up(id));
  }
  return {};
}

Status TwoPhase::take_up(TxId id) {
  const log::EntryView entry = log_.pinned(id);
  PMSTORE_TRY(const ShardRecordReader record,
              ShardRecordReader::open_whole(entry.payload, records_.catalog().header().epoch));
  Shared shared;
  shared.participants = record.participants();
  shared.state = State::kCommitted;
  if (record.kind() == ShardRecordKind::kRedo) {
    shared.state = State::kPrepared;
    PMSTORE_TRY(shared.plan, commits_.hold_again(id, entry.payload));
  }
  shared.state == State::kCommitted ? ++committed_ : ++undecided_[id.client];
  transactions_.emplace(id, std::move(shared));
  return {};
}

// ---- locking and preparing ----

Status TwoPhase::lock(const CommitView& request, std::span<const ShardParticipant> participants,
                      uint64_t now_ns) {
  const TxId id{request.client, request.sequence};
  PMSTORE_CHECK(!transactions_.contains(id), "a number is executed once");
  if (transactions_.size() - committed_ >= kMost) return too_many();
  if (committed_ >= kMostCommitted) return too_many_committed();
  const auto of_client = undecided_.find(id.client);
  if (of_client != undecided_.end() && of_client->second >= kMostOfClient) {
    return too_many_of_client();
  }
  PMSTORE_TRY(CommitPlan* const plan, commits_.hold(request, participants));
  Status reserved;
  if (!participants.empty()) {
    reserved = log_.reserve(id, plan->payload_bytes(), participants.size());
  }
  if (!reserved) {
    commits_.give_up_held(*plan);
    return reserved;
  }
  transactions_.emplace(
      id, Shared{State::kLocked, plan, now_ns, {participants.begin(), participants.end()}});
  ++undecided_[id.client];
  return {};
}

void TwoPhase::leave(ClientId client) {
  const auto at = undecided_.find(client);
  PMSTORE_CHECK(at != undecided_.end() && at->second > 0, "what is undecided is counted");
  if (--at->second == 0) undecided_.erase(at);
}

void TwoPhase::give_up(Transactions::iterator at) {
  PMSTORE_CHECK(is_idle_lock(at->second), "only a decision ends what is prepared");
  commits_.give_up_held(*at->second.plan);
  if (!at->second.participants.empty()) log_.unpin(at->first);
  leave(at->first.client);
  transactions_.erase(at);
}

Status TwoPhase::prepare(TxId id, std::span<const std::byte> reads,
                         std::span<const std::byte> absences) {
  if (latch_.failed()) return latch_.error();
  const auto at = transactions_.find(id);
  if (at == transactions_.end() || !is_idle_lock(at->second)) return not_here(id, "locked");
  Shared& shared = at->second;
  Status valid = commits_.validate_held(*shared.plan, reads, absences);
  if (valid && shared.participants.empty()) {
    valid = commits_.join_held(*shared.plan);
    if (valid) {
      leave(id.client);
      transactions_.erase(at);
      return {};
    }
  } else if (valid) {
    const auto logged =
        log_.append_prepared(id, shared.plan->entry_room(), shared.plan->payload_bytes());
    if (logged) {
      commits_.end_guard(*shared.plan);
      wait(at, Step::kPrepare, *logged);
      return {};
    }
    valid = logged.error();
  }
  // What waits in the group may be in the way.
  const bool comes_again =
      valid.code() == ErrorCode::kConflict || valid.code() == ErrorCode::kBackPressure;
  if (log_.all_applied() || !comes_again) give_up(at);
  return valid;
}

// ---- the group ----

void TwoPhase::wait(Transactions::iterator at, Step step, uint64_t end_lsn) {
  PMSTORE_CHECK(at->second.step == Step::kNone, "one step of a transaction waits at a time");
  at->second.step = step;
  at->second.end_lsn = end_lsn;
  waiting_.push_back(at->first);
}

bool TwoPhase::is_waiting(TxId id) const {
  const auto at = transactions_.find(id);
  return at != transactions_.end() && at->second.step != Step::kNone;
}

void TwoPhase::finish_step(Transactions::iterator at, const DurableLog& logged) {
  Shared& shared = at->second;
  PMSTORE_CHECK(logged.covers(shared.end_lsn), "what a step has logged is durable");
  switch (std::exchange(shared.step, Step::kNone)) {
    case Step::kPrepare: shared.state = State::kPrepared; break;
    case Step::kCommit:
      commits_.apply_held(logged, *std::exchange(shared.plan, nullptr), shared.end_lsn);
      shared.state = State::kCommitted;
      ++committed_;
      leave(at->first.client);
      break;
    default:
      // Durable before a lock is free: else the next start could find the redo record alone, and
      // lock what others have changed since.
      commits_.give_up_held(*shared.plan);
      leave(at->first.client);
      transactions_.erase(at);
  }
  log_.applied();
}

void TwoPhase::finish_group(const DurableLog& logged) {
  for (const TxId id : std::exchange(waiting_, {})) {
    const auto at = transactions_.find(id);
    PMSTORE_CHECK(at != transactions_.end(), "what waits stays until its step is done");
    finish_step(at, logged);
  }
}

void TwoPhase::abandon_group() { waiting_.clear(); }

// ---- deciding ----

Status TwoPhase::commit(TxId id, uint64_t known_through) {
  if (latch_.failed()) return latch_.error();
  const auto at = transactions_.find(id);
  if (at == transactions_.end() || at->second.state == State::kLocked) {
    return not_here(id, "prepared");
  }
  Shared& shared = at->second;
  if (shared.state == State::kCommitted) return {};
  PMSTORE_CHECK(shared.step == Step::kNone, "the group is finished before another decision");
  const auto record =
      encode_decision(ShardRecordKind::kCommit, id.client, records_.catalog().header().epoch,
                      shared.participants, {known_through});
  PMSTORE_TRY(const uint64_t end_lsn, log_.append_commit(id, record));
  wait(at, Step::kCommit, end_lsn);
  return {};
}

Status TwoPhase::abort(TxId id, uint64_t known_through) {
  if (latch_.failed()) return latch_.error();
  const auto at = transactions_.find(id);
  if (at == transactions_.end()) return {};
  PMSTORE_CHECK(at->second.step == Step::kNone, "the group is finished before another decision");
  if (at->second.state == State::kLocked) {
    give_up(at);
    return {};
  }
  if (at->second.state == State::kCommitted) {
    return make_error(ErrorCode::kConflict,
                      "transaction " + id.to_string() + " was committed here");
  }
  const auto record = encode_decision(ShardRecordKind::kAbort, id.client,
                                      records_.catalog().header().epoch, {}, {known_through});
  PMSTORE_TRY(const uint64_t end_lsn, log_.append_abort(id, record));
  wait(at, Step::kAbort, end_lsn);
  return {};
}

TwoPhase::Transactions::iterator TwoPhase::forget(Transactions::iterator at) {
  PMSTORE_CHECK(at->second.state == State::kCommitted, "what is undecided is not forgotten");
  log_.unpin(at->first);
  --committed_;
  return transactions_.erase(at);
}

void TwoPhase::forget(TxId id) {
  const auto at = transactions_.find(id);
  if (at != transactions_.end() && at->second.state == State::kCommitted) forget(at);
}

// With each request of a client that says more: it walks only over those of its session.
void TwoPhase::forget_through(TxId id) {
  if (committed_ == 0) return;
  const auto end = transactions_.upper_bound(id);
  for (auto at = first_of_session(id); at != end;) {
    at = at->second.state == State::kCommitted ? forget(at) : std::next(at);
  }
}

TwoPhase::Transactions::iterator TwoPhase::first_of_session(TxId id) {
  return transactions_.lower_bound({id.client, first_sequence_of(session_of(id.sequence))});
}

void TwoPhase::end_session(TxId id) {
  for (auto at = first_of_session(id); at != transactions_.end() && same_session(at->first, id);) {
    const auto next = std::next(at);
    if (is_idle_lock(at->second)) give_up(at);
    at = next;
  }
}

void TwoPhase::give_up_locked_before(uint64_t ns) {
  for (auto at = transactions_.begin(); at != transactions_.end();) {
    const auto next = std::next(at);
    if (is_idle_lock(at->second) && at->second.locked_ns < ns) give_up(at);
    at = next;
  }
}

// ---- looking ----

std::optional<TwoPhase::State> TwoPhase::state(TxId id) const {
  const auto at = transactions_.find(id);
  if (at == transactions_.end()) return std::nullopt;
  return at->second.state;
}

size_t TwoPhase::count(State state) const {
  if (state == State::kCommitted) return committed_;
  return static_cast<size_t>(
      std::count_if(transactions_.begin(), transactions_.end(),
                    [&](const auto& each) { return each.second.state == state; }));
}

TwoPhase::Part TwoPhase::part(TxId id) const {
  const auto at = transactions_.find(id);
  PMSTORE_CHECK(at != transactions_.end(), "the transaction is here");
  const Shared& shared = at->second;
  const size_t locked = shared.plan == nullptr ? 0 : shared.plan->writes().size();
  return {shared.participants, locked, shared.locked_ns};
}

std::vector<TxId> TwoPhase::open_transactions() const {
  std::vector<TxId> ids;
  for (const auto& [id, shared] : transactions_) {
    if (shared.state != State::kLocked) ids.push_back(id);
  }
  return ids;
}

}  // namespace pmstore::internal
