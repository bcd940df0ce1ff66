// ServerCore's part in transactions that write at several servers. See pmstore/shard/two_phase.h.

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>

#include "base/atomic_copy.h"
#include "pmstore/server/server_state.h"

namespace pmstore::internal {

namespace {

using service::bytes_of;

constexpr uint64_t kLooksPerLockTime = 4;

Error malformed() { return make_error(ErrorCode::kProtocol); }

template <size_t N>
bool all_zero(const uint8_t (&padding)[N]) {
  return std::all_of(std::begin(padding), std::end(padding), [](uint8_t b) { return b == 0; });
}

Vote vote_of(std::optional<TwoPhase::State> state) {
  if (state == TwoPhase::State::kPrepared) return Vote::kPrepared;
  if (state == TwoPhase::State::kCommitted) return Vote::kCommitted;
  return Vote::kNotHere;
}

}  // namespace

// A request is copied: the client can write its request ring meanwhile.
void ServerCore::serve_two_phase(Session& session, fabric::RpcCall& call,
                                 std::span<const std::byte> body) {
  if (discipline != LockDiscipline::kCpu) {
    return call.reply_error(
        make_error(ErrorCode::kUnsupported,
                   "transactions of several servers need lock discipline cpu at each"));
  }
  const std::span<std::byte> copy = request_copy(body.size());
  base::copy_from_shared(copy.data(), body.data(), body.size());
  MessageReader reader(copy);
  switch (static_cast<Method>(call.method())) {
    case Method::kLock: {
      const Status locked = serve_lock(session, copy);
      if (locked) return call.reply(bytes_of(CommitReply{}));
      if (locked.code() == ErrorCode::kProtocol) return drop_malformed(session, call);
      return call.reply_error(locked.error());
    }
    case Method::kPrepare: return serve_prepare(session, call, copy);
    case Method::kDecide: return serve_decide(session, call, copy);
    case Method::kVote: {
      const auto request = reader.get<VoteRequest>();
      if (!reader.complete()) return drop_malformed(session, call);
      const auto answer = vote(request);
      return answer ? call.reply(bytes_of(*answer)) : call.reply_error(answer.error());
    }
    default: {
      const auto request = reader.get<UndecidedRequest>();
      if (!reader.complete()) return drop_malformed(session, call);
      const auto listed = list_undecided(request, call.reply_room());
      return listed ? call.reply_filled(*listed) : call.reply_error(listed.error());
    }
  }
}

Status ServerCore::serve_lock(Session& session, std::span<const std::byte> body) {
  MessageReader reader(body);
  const auto head = reader.get<LockRequest>();
  const size_t list_bytes = head.participants * sizeof(ShardParticipant);
  if (reader.failed() || !all_zero(head.padding) || head.participants > kMostParticipants ||
      list_bytes > body.size() - sizeof head) {
    return malformed();
  }
  std::vector<ShardParticipant> participants(head.participants);
  if (list_bytes > 0) std::memcpy(participants.data(), body.data() + sizeof head, list_bytes);
  for (const ShardParticipant& each : participants) {
    if (each.partition != 0 || each.shard != 0 || each.zero != 0) return malformed();
  }
  const auto request = decode_commit(session.client, body.subspan(sizeof head + list_bytes));
  if (!request || request->write_count == 0 || !use_number(session, *request)) return malformed();
  // It logs nothing, so it has an answer.
  const Status locked = *group.step(
      session, [&] { return store->two_phase().lock(*request, participants, executor.now_ns()); });
  if (!locked && locked.code() == ErrorCode::kConflict) ++totals.conflicts;
  if (locked && !std::exchange(watching_locks_, true)) run(watch_locks());
  return locked;
}

void ServerCore::serve_prepare(Session& session, fabric::RpcCall& call,
                               std::span<const std::byte> body) {
  MessageReader reader(body);
  const auto request = reader.get<PrepareRequest>();
  const uint64_t reads_bytes = uint64_t{request.reads} * sizeof(ReadCheck);
  const uint64_t absences_bytes = uint64_t{request.absences} * sizeof(AbsenceCheck);
  if (reader.failed() || reads_bytes + absences_bytes != body.size() - sizeof request) {
    return drop_malformed(session, call);
  }
  const auto checks = body.subspan(sizeof request);
  const TxId id{session.client, request.sequence};
  TwoPhase& two_phase = store->two_phase();
  if (!finish_step_of(session, id)) return;
  const auto prepared = group.step(session, [&] {
    return two_phase.prepare(id, checks.first(reads_bytes), checks.subspan(reads_bytes));
  });
  // Of this server alone: it commits.
  const auto step = two_phase.state(id) ? GroupStep::kPrepared : GroupStep::kTransaction;
  if (!prepared) {
    return group.wait_for_the_drain(places[session.place].session, std::move(call), step);
  }
  step == GroupStep::kPrepared ? answer_step(session, call, step, *prepared)
                               : answer_commit(session, call, *prepared);
}

// A second decision is about what the first one has left.
bool ServerCore::finish_step_of(Session& session, TxId id) {
  if (!store->two_phase().is_waiting(id)) return true;
  const std::shared_ptr<Session> keep = places[session.place].session;
  group.finish();
  return !keep->ended;
}

bool ServerCore::is_own(const Session& session, TxId id) const {
  return id.client == session.client && id.sequence >= session.first_sequence &&
         id.sequence - session.first_sequence < kSessionSequences;
}

void ServerCore::serve_decide(Session& session, fabric::RpcCall& call,
                              std::span<const std::byte> body) {
  MessageReader reader(body);
  const auto request = reader.get<DecideRequest>();
  if (!reader.complete() || !all_zero(request.padding) || request.decision < Decision::kCommit ||
      request.decision > Decision::kForget) {
    return drop_malformed(session, call);
  }
  const TxId id{request.client, request.sequence};
  const bool own = is_own(session, id);
  if (!own) {
    const Status ended = check_ended(id);
    if (!ended) return call.reply_error(ended.error());
  }
  if (!finish_step_of(session, id)) return;
  TwoPhase& two_phase = store->two_phase();
  if (request.decision == Decision::kForget) {
    two_phase.forget(id);
    return call.reply(bytes_of(CommitReply{}));
  }
  const bool waited = two_phase.state(id) == TwoPhase::State::kPrepared;
  const bool known = own && session.known_through >= session.first_sequence;
  const uint64_t known_through = known ? session.known_through : 0;
  const bool commits = request.decision == Decision::kCommit;
  const auto decided = group.step(session, [&] {
    return commits ? two_phase.commit(id, known_through) : two_phase.abort(id, known_through);
  });
  const GroupStep step = commits ? own ? GroupStep::kCommitted : GroupStep::kCommittedOfOther
                         : own   ? GroupStep::kAborted
                                 : GroupStep::kAbortedOfOther;
  if (!decided) {
    return group.wait_for_the_drain(places[session.place].session, std::move(call), step);
  }
  if (waited) return answer_step(session, call, step, *decided);
  *decided ? call.reply(bytes_of(CommitReply{})) : call.reply_error(decided->error());
}

void ServerCore::answer_step(Session& session, fabric::RpcCall& call, GroupStep step,
                             const Status& done) {
  if (done) {
    note_step(session, step);
    return call.reply(bytes_of(CommitReply{}));
  }
  if (done.code() == ErrorCode::kConflict) ++totals.conflicts;
  call.reply_error(done.error());
}

// A session has a lease while something of it is prepared.
void ServerCore::note_step(Session& session, GroupStep step) {
  const bool commits = step == GroupStep::kCommitted || step == GroupStep::kCommittedOfOther;
  if (commits) ++totals.commits;
  if (step == GroupStep::kCommittedOfOther || step == GroupStep::kAbortedOfOther) return;
  if (commits) ++session.commits;
  if (step == GroupStep::kPrepared) {
    ++session.prepared;
  } else {
    PMSTORE_CHECK(session.prepared > 0, "a session counts what it has prepared");
    --session.prepared;
  }
  if (!session.ended) host.look_at_lease(session);
}

// A number of which "not here" will be said for ever: its session is over, and no other one has it.
Status ServerCore::check_ended(TxId id) const {
  if (id.sequence >= store->end_of_sessions()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "there is no transaction " + id.to_string() +
                          " yet: its number is beyond those of every session so far");
  }
  if (!may_still_commit(id, false)) return {};
  return make_error(ErrorCode::kCommitUnknown,
                    "the client of " + id.to_string() + " is still connected; ask when it is not");
}

// By a session that is not over: it was given up here, or aborted, and does not come again.
bool ServerCore::was_executed(TxId id) const {
  return std::any_of(places.begin(), places.end(), [&](const Place& place) {
    const auto& session = place.session;
    return session && session->client == id.client && id.sequence >= session->first_sequence &&
           session->executed.was_used(id.sequence);
  });
}

Result<VoteReply> ServerCore::vote(const VoteRequest& request) const {
  const TxId id{request.client, request.sequence};
  const auto state = store->two_phase().state(id);
  const Vote vote = vote_of(state);
  const bool stays = vote == Vote::kCommitted || (!state && was_executed(id));
  if (!stays) {
    PMSTORE_TRY_STATUS(check_ended(id));
  }
  return VoteReply{vote};
}

Result<size_t> ServerCore::list_undecided(const UndecidedRequest& request,
                                          std::span<std::byte> room) const {
  const TwoPhase& two_phase = store->two_phase();
  UndecidedReply reply{};
  MessageWriter writer(room);
  writer.put(reply);
  for (const TxId id : two_phase.open_transactions()) {
    if (id <= TxId{request.client, request.sequence}) continue;
    const TwoPhase::Part part = two_phase.part(id);
    const size_t list_bytes = part.participants.size() * sizeof(ShardParticipant);
    if (sizeof(UndecidedItem) + list_bytes > room.size() - writer.bytes()) {
      reply.more = 1;
      break;
    }
    const uint64_t age_ns = executor.now_ns() - std::max(part.locked_ns, started_ns_);
    writer.put(UndecidedItem{id.client,
                             id.sequence,
                             static_cast<uint16_t>(part.participants.size()),
                             vote_of(two_phase.state(id)),
                             {},
                             static_cast<uint32_t>(part.locked),
                             age_ns / 1'000'000});
    for (const ShardParticipant& each : part.participants) writer.put(each);
    ++reply.count;
  }
  if (writer.overflowed() || (reply.more != 0 && reply.count == 0)) {
    return make_error(ErrorCode::kTooLarge, "a transaction does not fit in the reply");
  }
  std::memcpy(room.data(), &reply, sizeof reply);
  return writer.bytes();
}

// What is only locked has no other trace than its locks; what is prepared stays, until somebody has
// collected the votes.
void ServerCore::end_two_phase(Session& session) {
  TwoPhase& two_phase = store->two_phase();
  if (two_phase.empty()) return;
  two_phase.end_session({session.client, session.first_sequence});
  const uint64_t known = session.goodbye ? session.first_sequence + kSessionSequences - 1  //
                                         : session.known_through;
  two_phase.forget_through({session.client, known});
}

// Runs as long as something is locked that is not prepared.
base::Task<void> ServerCore::watch_locks() {
  const uint64_t lock_ns = uint64_t{options.lock_ms} * 1'000'000;
  while (store->two_phase().count(TwoPhase::State::kLocked) > 0) {
    co_await executor.sleep_for(lock_ns / kLooksPerLockTime + 1);
    const uint64_t now_ns = executor.now_ns();
    if (now_ns > lock_ns) store->two_phase().give_up_locked_before(now_ns - lock_ns);
  }
  watching_locks_ = false;
}

}  // namespace pmstore::internal
