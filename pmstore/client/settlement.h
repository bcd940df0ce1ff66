// Settlement: decides transactions of several servers that their coordinators have left prepared
// (pmstore/joint_commit.h), and tells the participants.
//
// Collects the votes of all participants of a transaction. One that has committed, or all prepared:
// commit. One that has it not: abort. So several that settle at the same time, and a coordinator
// that is slow, decide the same. Whoever was told is asked again, since another one may have been
// faster. Invariants: without force nobody is told a decision before every participant has voted;
// nothing is forgotten that contradicts what another participant says. Threads: the executor's.
// Lifetimes: the connectors outlive it and its tasks. Its tasks may be destroyed at any suspension.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "base/task.h"
#include "pmstore/client/connector.h"
#include "pmstore/joint_commit.h"
#include "pmstore/layout/protocol.h"
#include "pmstore/layout/shard_record.h"

namespace pmstore::internal {

class Settlement {
 public:
  explicit Settlement(const std::vector<Client*>& clients);
  explicit Settlement(const std::vector<Connector*>& connectors);

  // settle(), open_transactions() and force_decision() of joint_commit.h.
  base::Task<Result<Settled>> settle_all();
  base::Task<Result<OpenTransactions>> list_all();
  base::Task<Result<Settled>> force(TxId name, ForcedDecision decision, std::vector<uint64_t> lost);

  // Settles one transaction, whose parts have these names, in the order of the connectors. On
  // success every participant has the decision, and none remembers it. Errors: of the first server
  // that cannot be asked; CommitUnknown: the coordinator is still connected there; Conflict: one
  // has committed it, and another one has aborted it.
  base::Task<Status> settle_one(std::vector<TxId> names);

 private:
  struct Server {
    Connector* connector;
    SessionRef session;
    uint64_t pool;   // 0: not known
    Status reached;  // after an error it is asked nothing more
  };
  // One participant's part, by the name that it has there.
  struct Part {
    Server* server;  // nullptr: not among the servers that were reached
    uint64_t pool;
    TxId name;
    std::optional<Vote> vote = {};  // kCommitted also when it has forgotten that
    bool aborted = false;           // it is known, and not only not here
  };

  base::Task<void> reach(Server& server);
  base::Task<void> reach_all();
  // When none of the servers can be asked.
  std::optional<Error> nobody() const;
  std::vector<Status> servers_reached() const;
  template <typename Request>
  static base::Task<Result<fabric::RpcReply>> call(Server& server, Method method, Request request,
                                                   uint32_t reply_bytes);
  // The same at each of its servers.
  static TxId first_name(const OpenTransaction& open);
  base::Task<Result<std::vector<OpenTransaction>>> list(size_t server);
  std::vector<Part> parts_of(const OpenTransaction& open);
  base::Task<Status> settle(const OpenTransaction& open);
  base::Task<Status> settle_parts(std::vector<Part>& parts);
  static base::Task<Status> ask(Part& part);
  static base::Task<Status> ask_for_the_outcome(Part& part);
  static bool any(const std::vector<Part>& parts, Vote vote);
  static bool is_contradicted(const std::vector<Part>& parts);
  static base::Task<Status> tell(const Part& part, Decision decision);

  // forced_decision.cc
  base::Task<Result<std::vector<Part>>> find(TxId name);
  // Those that cannot be asked are exactly those that are lost.
  static base::Task<Status> ask_those_who_are_left(std::vector<Part>& parts, TxId name,
                                                   std::vector<uint64_t> lost);
  base::Task<Status> tell_those_who_are_left(std::vector<Part>& parts, TxId name, bool commits);
  static Status check_forced(const std::vector<Part>& parts, TxId name, ForcedDecision decision);

  std::vector<Server> servers_;
  Settled settled_;
};

}  // namespace pmstore::internal
