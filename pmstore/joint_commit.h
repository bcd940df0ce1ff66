// Transactions that write at several servers (lock discipline cpu at each).
//
//   Transaction paris = at_paris.begin(), rome = at_rome.begin();  // two clients
//   ... get and put in both ...
//   std::vector<Transaction> both;
//   both.push_back(std::move(paris));
//   both.push_back(std::move(rome));
//   Status done = co_await commit_together(std::move(both));
//
// All of them happen at one moment, or none does: strictly serializable, also with the transactions
// of one server. docs/transactions.md has the protocol, a two-phase commit. Threads: the executor
// of the clients, which is one for all. Lifetimes: the clients outlive the tasks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "base/task.h"
#include "pmstore/client.h"

namespace pmstore {

// Success: what the transactions write is durable at each server, and visible unless a server
// cannot be reached: there it is, once somebody settles it. Errors as Transaction::commit(), which
// all of them have ended with; CommitUnknown: after settle(), Client::outcome() of any of the
// transactions tells. Unsupported: a server that is written to has lock discipline rnic. TooLarge,
// BackPressure also where a shard log has no room for a transaction of several servers.
//
// A commit that has begun runs to its end, also when the task is destroyed. When a server does not
// answer a decision, the clients go on behind the result: they connect again and settle this
// transaction, with no new try after 20 s. When a client is destroyed, or a server is away for
// longer, transactions may stay prepared: locked, so that others meet Conflict, until settle().
base::Task<Status> commit_together(std::vector<Transaction> transactions);

struct Settled {
  size_t committed = 0;
  size_t aborted = 0;
  // Not decided: a participant is not among the clients' servers, does not answer, or says that the
  // coordinator is still connected.
  size_t waiting = 0;
  // Committed, and still remembered by one of these servers: a participant could not be asked, or
  // the coordinator is still connected and will say itself that all have it. Takes room there.
  size_t remembered = 0;
  // One participant has committed it and another one has aborted it, by a decision that was forced
  // or in a pool that was put back. What is prepared of it stays so, and what is remembered too.
  size_t contradicted = 0;
  // In the order of the clients: an error says why this server could not be asked (any more). What
  // it has a part in was left waiting; what it alone has listed is not counted.
  std::vector<Status> servers;
};

// Decides the transactions of several servers that coordinators have left prepared at the servers
// of these clients: collects the votes of all participants of each, and tells them the decision.
// Durable on success. May be called by anybody, at any time, and by several at once: the votes
// decide. A coordinator that is still connected is left alone. An error: of the first connection,
// when none of the servers could be asked.
base::Task<Result<Settled>> settle(std::vector<Client*> clients);

// A transaction of several servers as one of them has it: prepared and not decided, or committed
// and remembered.
struct OpenTransaction {
  // At a server, by the identity of its pool.
  struct Part {
    uint64_t pool = 0;
    TxId name;
  };
  size_t server = 0;  // of the clients
  uint64_t pool = 0;
  TxId name;  // of this part; TxId::client is the coordinator
  bool committed = false;
  uint64_t locked = 0;  // so many keys
  uint64_t age_ms = 0;  // since it was locked, or since the server's start when that was later
  std::vector<Part> others;
};
struct OpenTransactions {
  std::vector<OpenTransaction> transactions;  // of each server that could be asked
  std::vector<Status> servers;                // as Settled::servers
};
// Errors as settle().
base::Task<Result<OpenTransactions>> open_transactions(std::vector<Client*> clients);

enum class ForcedDecision : uint8_t {
  kAbort,
  kCommit,
  kForget,  // of a commit that is remembered for a participant that never comes back
};

// For an administrator whose server is lost for ever: decides the transaction that has this name at
// any of its servers although the participants with the pools `lost` cannot be asked: these are all
// that are not among the clients' servers, or cannot be reached. Durable on success at each of
// these servers that has it, as any decision. The lost participant may have decided otherwise: then
// the transaction has happened there and not here, or the other way round. One that comes back
// hears of the decision from settle(), unless it was forgotten.
//
// NotFound: none of these servers lists it. InvalidArgument: others than `lost` cannot be asked.
// Conflict: one of them has decided otherwise; or each
// participant can be asked, so that settle() decides. CommitUnknown: the coordinator is still
// connected. Else as settle().
base::Task<Result<Settled>> force_decision(std::vector<Client*> clients, TxId name,
                                           ForcedDecision decision, std::vector<uint64_t> lost);

}  // namespace pmstore
