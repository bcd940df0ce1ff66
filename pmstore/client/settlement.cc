#include "pmstore/client/settlement.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "base/check.h"
#include "pmstore/client/client_state.h"

namespace pmstore::internal {

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
    for (uint32_t i = 0; i < page.count && !reader.failed(); ++i) {
      const auto item = reader.get<UndecidedItem>();
      OpenTransaction& open = found.emplace_back();
      open.server = number;
      open.pool = server.pool;
      open.name = {item.client, item.sequence};
      open.committed = item.state == Vote::kCommitted;
      open.locked = item.locked;
      open.age_ms = item.age_ms;
      for (uint16_t n = 0; n < item.participants && !reader.failed(); ++n) {
        const auto participant = reader.get<ShardParticipant>();
        open.others.push_back({participant.pool, participant.name()});
      }
    }
    if (!reader.complete() || (page.more != 0 && page.count == 0)) {
      co_return server.session->malformed_reply("a list of undecided transactions");
    }
  }
  co_return found;
}

std::vector<Settlement::Part> Settlement::parts_of(const OpenTransaction& open) {
  std::vector<Part> parts = {{&servers_[open.server], open.name}};
  for (const OpenTransaction::Part& each : open.others) {
    const auto at = std::find_if(servers_.begin(), servers_.end(), [&](const Server& one) {
      return one.session && one.pool == each.pool;
    });
    parts.push_back({at == servers_.end() ? nullptr : &*at, each.name});
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
  co_return Status{};
}

base::Task<Status> Settlement::tell(const Part& part, Decision decision) {
  const DecideRequest request{part.name.client, part.name.sequence, decision, {}};
  auto answer = co_await call(*part.server, Method::kDecide, request, sizeof(CommitReply));
  if (answer) co_return Status{};
  // Somebody else has collected the same votes, and was faster.
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

base::Task<Status> Settlement::settle_parts(std::vector<Part>& parts) {
  for (Part& part : parts) {
    PMSTORE_CO_TRY_STATUS(co_await ask(part));
  }
  const auto any = [&](Vote vote) {
    return std::any_of(parts.begin(), parts.end(),
                       [&](const Part& part) { return part.vote == vote; });
  };
  // Who has committed shows that all were prepared. Then "not here" is of a participant that knows
  // that all have the commit.
  const bool commits = any(Vote::kCommitted) || !any(Vote::kNotHere);
  const bool decides = any(Vote::kPrepared);
  for (const Part& part : parts) {
    if (part.vote != Vote::kPrepared) continue;
    PMSTORE_CO_TRY_STATUS(co_await tell(part, commits ? Decision::kCommit : Decision::kAbort));
  }
  if (decides) ++(commits ? settled_.committed : settled_.aborted);
  if (!commits) co_return Status{};
  for (const Part& part : parts) {
    PMSTORE_CO_TRY_STATUS(co_await tell(part, Decision::kForget));
  }
  co_return Status{};
}

base::Task<Status> Settlement::settle_one(std::vector<TxId> names) {
  PMSTORE_CHECK(names.size() == servers_.size(), "each server has one part");
  std::vector<Part> parts;
  for (size_t i = 0; i < names.size(); ++i) {
    co_await reach(servers_[i]);
    PMSTORE_CO_TRY_STATUS(servers_[i].reached);
    parts.push_back({&servers_[i], names[i]});
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
  for (size_t i = 0; i < servers_.size(); ++i) {
    if (!servers_[i].session) continue;
    auto open = co_await list(i);
    if (!open) {
      servers_[i].reached = open.error();
      continue;
    }
    for (const OpenTransaction& each : *open) {
      const Status done = co_await settle(each);
      if (!done) (each.committed ? remembered : waiting).insert(first_name(each));
    }
  }
  for (const TxId each : waiting) remembered.erase(each);
  if (auto why = nobody()) co_return std::move(*why);
  settled_.servers = servers_reached();
  settled_.waiting = waiting.size();
  settled_.remembered = remembered.size();
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
                                           ForcedDecision decision) {
  internal::Settlement settlement(clients);
  co_return co_await settlement.force(name, decision);
}

}  // namespace pmstore
