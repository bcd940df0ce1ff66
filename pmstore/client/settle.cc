// Decides what coordinators have left prepared: pmstore/joint_commit.h.

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/check.h"
#include "pmstore/client/client_state.h"
#include "pmstore/joint_commit.h"
#include "pmstore/layout/shard_record.h"

namespace pmstore::internal {

class Settlement {
 public:
  explicit Settlement(const std::vector<Client*>& clients) {
    for (Client* const client : clients) {
      servers_.push_back({&client->state_->connector, {}, 0, {}});
    }
  }
  base::Task<Result<Settled>> run();

 private:
  struct Server {
    Connector* connector;
    SessionRef session;
    uint64_t pool;   // 0: not known
    Status reached;  // after an error it is asked nothing more
  };
  // One participant's part, by the name that it has there.
  struct Part {
    Server* server;
    TxId name;
    std::optional<Vote> vote = {};
  };
  struct Open {
    TxId name;
    Vote state;
    std::vector<ShardParticipant> others;
  };
  base::Task<void> reach(Server& server);
  template <typename Request>
  static base::Task<Result<fabric::RpcReply>> call(Server& server, Method method, Request request,
                                                   uint32_t reply_bytes);
  static TxId first_name(const Open& open);
  static base::Task<Result<std::vector<Open>>> list(Server& server);
  base::Task<Status> settle(Server& server, const Open& open);
  // nullopt: one of them is at none of the servers.
  std::optional<std::vector<Part>> parts_of(Server& server, const Open& open);
  static base::Task<Status> ask(Part& part);
  static base::Task<Status> tell(const Part& part, Decision decision);

  std::vector<Server> servers_;
  Settled settled_;
};

// The same at each of its servers.
TxId Settlement::first_name(const Open& open) {
  TxId first = open.name;
  for (const ShardParticipant& each : open.others) first = std::min(first, each.name());
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

base::Task<Result<std::vector<Settlement::Open>>> Settlement::list(Server& server) {
  constexpr uint32_t kPageBytes = 64 * 1024;
  std::vector<Open> found;
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
      Open& open = found.emplace_back(Open{{item.client, item.sequence}, item.state, {}});
      for (uint16_t n = 0; n < item.participants && !reader.failed(); ++n) {
        open.others.push_back(reader.get<ShardParticipant>());
      }
    }
    if (!reader.complete() || (page.more != 0 && page.count == 0)) {
      co_return server.session->malformed_reply("a list of undecided transactions");
    }
  }
  co_return found;
}

std::optional<std::vector<Settlement::Part>> Settlement::parts_of(Server& server,
                                                                  const Open& open) {
  std::vector<Part> parts = {{&server, open.name}};
  for (const ShardParticipant& each : open.others) {
    const auto at = std::find_if(servers_.begin(), servers_.end(), [&](const Server& one) {
      return one.session && one.pool == each.pool;
    });
    if (at == servers_.end()) return std::nullopt;
    parts.push_back({&*at, each.name()});
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
base::Task<Status> Settlement::settle(Server& server, const Open& open) {
  auto parts = parts_of(server, open);
  if (!parts) co_return make_error(ErrorCode::kDisconnected, "a participant is not known");
  for (Part& part : *parts) {
    PMSTORE_CO_TRY_STATUS(co_await ask(part));
  }
  const auto any = [&](Vote vote) {
    return std::any_of(parts->begin(), parts->end(),
                       [&](const Part& part) { return part.vote == vote; });
  };
  // Who has committed shows that all were prepared. Then "not here" is of a participant that knows
  // that all have the commit.
  const bool commits = any(Vote::kCommitted) || !any(Vote::kNotHere);
  const bool decides = any(Vote::kPrepared);
  for (const Part& part : *parts) {
    if (part.vote != Vote::kPrepared) continue;
    PMSTORE_CO_TRY_STATUS(co_await tell(part, commits ? Decision::kCommit : Decision::kAbort));
  }
  if (decides) ++(commits ? settled_.committed : settled_.aborted);
  if (!commits) co_return Status{};
  for (const Part& part : *parts) {
    PMSTORE_CO_TRY_STATUS(co_await tell(part, Decision::kForget));
  }
  co_return Status{};
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

// The others are settled also when a server is away: what it has a part in waits.
base::Task<Result<Settled>> Settlement::run() {
  for (Server& server : servers_) co_await reach(server);
  std::set<TxId> waiting;
  std::set<TxId> remembered;
  for (Server& server : servers_) {
    if (!server.session || server.session->discipline() != LockDiscipline::kCpu) continue;
    auto open = co_await list(server);
    if (!open) {
      server.reached = open.error();
      continue;
    }
    for (const Open& each : *open) {
      const Status done = co_await settle(server, each);
      if (!done) (each.state == Vote::kPrepared ? waiting : remembered).insert(first_name(each));
    }
  }
  for (const TxId each : waiting) remembered.erase(each);
  for (const Server& server : servers_) settled_.servers.push_back(server.reached);
  const auto failed = [](const Status& server) { return !server; };
  if (std::all_of(settled_.servers.begin(), settled_.servers.end(), failed) && !servers_.empty()) {
    co_return servers_.front().reached.error();
  }
  settled_.waiting = waiting.size();
  settled_.remembered = remembered.size();
  co_return settled_;
}

}  // namespace pmstore::internal

namespace pmstore {

base::Task<Result<Settled>> settle(std::vector<Client*> clients) {
  internal::Settlement settlement(clients);
  co_return co_await settlement.run();
}

}  // namespace pmstore
