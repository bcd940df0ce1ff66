#include "pmstore/client/settlement.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "base/check.h"
#include "pmstore/client/client_state.h"

namespace pmstore::internal {

namespace {

Error contradiction() {
  return make_error(ErrorCode::kConflict,
                    "one participant has committed it, and another one has aborted it");
}

}  // namespace

Settlement::Settlement(const std::vector<Client*>& clients) {
  for (Client* const client : clients) {
    servers_.push_back({&client->state_->connector, {}, 0, {}});
  }
}

Settlement::Settlement(const std::vector<Connector*>& connectors) {
  for (Connector* const connector : connectors) servers_.push_back({connector, {}, 0, {}});
}

TxId Settlement::first_name(const OpenTransaction& open) {
  TxId first = open.name;
  for (const OpenTransaction::Part& each : open.others) first = std::min(first, each.name);
  return first;
}

template <typename Request>
base::Task<Result<fabric::RpcReply>> Settlement::call(Server& server, Method method,
                                                      Request request, uint32_t reply_bytes) {
  if (!server.reached) co_return server.reached.error();
  const SessionRef session = server.session;
  std::array<std::byte, sizeof(RequestPrefix) + sizeof(Request)> room;
  MessageWriter message(room);
  message.put(session->prefix());
  message.put(request);
  auto answer =
      co_await session->rpc().call(static_cast<uint16_t>(method), message.message(), reply_bytes);
  if (!answer &&
      (answer.code() == ErrorCode::kDisconnected || answer.code() == ErrorCode::kTimeout)) {
    server.reached = answer.error();
  }
  co_return std::move(answer);
}

base::Task<Result<std::vector<OpenTransaction>>> Settlement::list(size_t number) {
  constexpr uint32_t kPageBytes = 64 * 1024;
  constexpr size_t kMost = 64 * 1024;  // no server has so many
  Server& server = servers_[number];
  std::vector<OpenTransaction> found;
  UndecidedReply page{0, 1};
  while (page.more != 0) {
    const TxId last = found.empty() ? TxId{} : found.back().name;
    const UndecidedRequest request{last.client, last.sequence};
    auto answer = co_await call(server, Method::kUndecided, request, kPageBytes);
    if (!answer) co_return std::move(answer.error());
    MessageReader reader(answer->bytes());
    page = reader.get<UndecidedReply>();
    bool ascends = true;  // else it would be asked for ever
    for (uint32_t i = 0; i < page.count && !reader.failed() && ascends; ++i) {
      const auto item = reader.get<UndecidedItem>();
      const TxId name{item.client, item.sequence};
      ascends = found.empty() || found.back().name < name;
      OpenTransaction& open = found.emplace_back();
      open.server = number;
      open.pool = server.pool;
      open.name = name;
      open.committed = item.state == Vote::kCommitted;
      open.locked = item.locked;
      open.age_ms = item.age_ms;
      for (uint16_t n = 0; n < item.participants && !reader.failed(); ++n) {
        const auto participant = reader.get<ShardParticipant>();
        open.others.push_back({participant.pool, participant.name()});
      }
    }
    if (!reader.complete() || !ascends || found.size() > kMost ||
        (page.more != 0 && page.count == 0)) {
      co_return server.session->malformed_reply("a list of undecided transactions");
    }
  }
  co_return found;
}

std::vector<Settlement::Part> Settlement::parts_of(const OpenTransaction& open) {
  std::vector<Part> parts = {{&servers_[open.server], open.pool, open.name}};
  for (const OpenTransaction::Part& each : open.others) {
    const auto at = std::find_if(servers_.begin(), servers_.end(), [&](const Server& one) {
      return one.session && one.pool == each.pool;
    });
    parts.push_back({at == servers_.end() ? nullptr : &*at, each.pool, each.name});
  }
  return parts;
}

base::Task<Status> Settlement::ask(Part& part) {
  const VoteRequest request{part.name.client, part.name.sequence};
  auto answer = co_await call(*part.server, Method::kVote, request, sizeof(VoteReply));
  if (!answer) co_return std::move(answer.error());
  MessageReader reader(answer->bytes());
  const auto reply = reader.get<VoteReply>();
  if (!reader.complete() || reply.vote < Vote::kNotHere || reply.vote > Vote::kCommitted) {
    co_return part.server->session->malformed_reply("a question for a vote");
  }
  part.vote = reply.vote;
  if (part.vote == Vote::kNotHere) co_return co_await ask_for_the_outcome(part);
  co_return Status{};
}

// What is not here was aborted, or it was committed and is forgotten.
base::Task<Status> Settlement::ask_for_the_outcome(Part& part) {
  const OutcomeRequest request{part.name.client, part.name.sequence};
  auto answer = co_await call(*part.server, Method::kOutcome, request, sizeof(OutcomeReply));
  if (!answer) {
    // The vote has to do.
    const ErrorCode code = answer.code();
    const bool unknown = code == ErrorCode::kOutcomeExpired || code == ErrorCode::kCommitUnknown;
    co_return unknown ? Status() : Status(std::move(answer.error()));
  }
  MessageReader reader(answer->bytes());
  const auto reply = reader.get<OutcomeReply>();
  if (!reader.complete() ||
      (reply.outcome != Outcome::kCommitted && reply.outcome != Outcome::kAborted)) {
    co_return part.server->session->malformed_reply("a question for an outcome");
  }
  part.aborted = reply.outcome == Outcome::kAborted;
  if (!part.aborted) part.vote = Vote::kCommitted;
  co_return Status{};
}

// An error that says that it is not what it was: somebody else has collected the same votes, and
// was faster. Who is told is asked again.
base::Task<Status> Settlement::tell(const Part& part, Decision decision) {
  const DecideRequest request{part.name.client, part.name.sequence, decision, {}};
  auto answer = co_await call(*part.server, Method::kDecide, request, sizeof(CommitReply));
  if (answer) co_return Status{};
  const ErrorCode code = answer.code();
  if (code == ErrorCode::kNotFound || code == ErrorCode::kConflict) co_return Status{};
  co_return std::move(answer.error());
}

// An error: it waits for a participant.
base::Task<Status> Settlement::settle(const OpenTransaction& open) {
  std::vector<Part> parts = parts_of(open);
  for (const Part& part : parts) {
    if (part.server == nullptr) {
      co_return make_error(ErrorCode::kDisconnected, "a participant is not known");
    }
  }
  co_return co_await settle_parts(parts);
}

bool Settlement::any(const std::vector<Part>& parts, Vote vote) {
  return std::any_of(parts.begin(), parts.end(),
                     [vote](const Part& part) { return part.vote == vote; });
}

// Only a forced decision, or a pool that was put back, does that.
bool Settlement::is_contradicted(const std::vector<Part>& parts) {
  const auto aborted = [](const Part& part) { return part.aborted; };
  return any(parts, Vote::kCommitted) && std::any_of(parts.begin(), parts.end(), aborted);
}

base::Task<Status> Settlement::settle_parts(std::vector<Part>& parts) {
  constexpr int kMostRounds = 4;
  bool decides = false;
  for (int round = 0; round < kMostRounds; ++round) {
    for (Part& part : parts) {
      PMSTORE_CO_TRY_STATUS(co_await ask(part));
    }
    if (is_contradicted(parts)) co_return contradiction();
    // Who has committed shows that all were prepared. Then "not here" is of a participant that
    // knows that all have the commit.
    const bool commits = any(parts, Vote::kCommitted) || !any(parts, Vote::kNotHere);
    if (any(parts, Vote::kPrepared)) {
      decides = true;
      for (const Part& part : parts) {
        if (part.vote != Vote::kPrepared) continue;
        PMSTORE_CO_TRY_STATUS(co_await tell(part, commits ? Decision::kCommit : Decision::kAbort));
      }
      continue;
    }
    if (decides) ++(commits ? settled_.committed : settled_.aborted);
    if (!commits) co_return Status{};
    for (const Part& part : parts) {
      PMSTORE_CO_TRY_STATUS(co_await tell(part, Decision::kForget));
    }
    co_return Status{};
  }
  co_return make_error(ErrorCode::kProtocol, "a participant does not take the decision");
}

base::Task<Status> Settlement::settle_one(std::vector<TxId> names) {
  PMSTORE_CHECK(names.size() == servers_.size(), "each server has one part");
  std::vector<Part> parts;
  for (size_t i = 0; i < names.size(); ++i) {
    co_await reach(servers_[i]);
    PMSTORE_CO_TRY_STATUS(servers_[i].reached);
    parts.push_back({&servers_[i], servers_[i].pool, names[i]});
  }
  co_return co_await settle_parts(parts);
}

base::Task<void> Settlement::reach(Server& server) {
  auto session = co_await server.connector->connected();
  if (!session) {
    server.reached = session.error();
    co_return;
  }
  server.session = std::move(*session);
  server.pool = server.session->hello().pool;
}

base::Task<void> Settlement::reach_all() {
  for (Server& server : servers_) {
    co_await reach(server);
    if (server.session && server.session->discipline() != LockDiscipline::kCpu) {
      server.session = {};  // it has no part in such transactions
    }
  }
}

std::vector<Status> Settlement::servers_reached() const {
  std::vector<Status> reached;
  for (const Server& server : servers_) reached.push_back(server.reached);
  return reached;
}

std::optional<Error> Settlement::nobody() const {
  const auto failed = [](const Server& server) { return !server.reached; };
  if (servers_.empty() || !std::all_of(servers_.begin(), servers_.end(), failed)) {
    return std::nullopt;
  }
  return servers_.front().reached.error();
}

// The others are settled also when a server is away: what it has a part in waits.
base::Task<Result<Settled>> Settlement::settle_all() {
  co_await reach_all();
  std::set<TxId> waiting;
  std::set<TxId> remembered;
  std::set<TxId> contradicted;
  for (size_t i = 0; i < servers_.size(); ++i) {
    if (!servers_[i].session) continue;
    auto open = co_await list(i);
    if (!open) {
      servers_[i].reached = open.error();
      continue;
    }
    for (const OpenTransaction& each : *open) {
      const Status done = co_await settle(each);
      if (done) continue;
      std::set<TxId>& left = done.code() == ErrorCode::kConflict ? contradicted
                             : each.committed                    ? remembered
                                                                 : waiting;
      left.insert(first_name(each));
    }
  }
  for (const TxId each : waiting) remembered.erase(each);
  if (auto why = nobody()) co_return std::move(*why);
  settled_.servers = servers_reached();
  settled_.waiting = waiting.size();
  settled_.remembered = remembered.size();
  settled_.contradicted = contradicted.size();
  co_return settled_;
}

base::Task<Result<OpenTransactions>> Settlement::list_all() {
  co_await reach_all();
  OpenTransactions all;
  for (size_t i = 0; i < servers_.size(); ++i) {
    if (!servers_[i].session) continue;
    auto open = co_await list(i);
    if (open) {
      all.transactions.insert(all.transactions.end(), open->begin(), open->end());
    } else {
      servers_[i].reached = open.error();
    }
  }
  if (auto why = nobody()) co_return std::move(*why);
  all.servers = servers_reached();
  co_return all;
}

}  // namespace pmstore::internal

namespace pmstore {

base::Task<Result<Settled>> settle(std::vector<Client*> clients) {
  internal::Settlement settlement(clients);
  co_return co_await settlement.settle_all();
}

base::Task<Result<OpenTransactions>> open_transactions(std::vector<Client*> clients) {
  internal::Settlement settlement(clients);
  co_return co_await settlement.list_all();
}

base::Task<Result<Settled>> force_decision(std::vector<Client*> clients, TxId name,
                                           ForcedDecision decision, std::vector<uint64_t> lost) {
  internal::Settlement settlement(clients);
  co_return co_await settlement.force(name, decision, std::move(lost));
}

}  // namespace pmstore
