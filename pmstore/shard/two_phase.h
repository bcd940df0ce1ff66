// TwoPhase: this shard's part of transactions that write at several servers (lock discipline cpu).
//
//   kLocked     the writes are locked, nothing is durable; the coordinator may vanish. One that
//               reads elsewhere and writes only here has no participants, and prepare() commits it
//   kPrepared   the redo record is durable, and names the other participants. Only a decision ends
//               it: whoever has collected what every participant answers to vote()
//   kCommitted  the commit record is durable, the writes are in place and unlocked; remembered
//               until every participant has the decision
//
// An aborted transaction is not remembered: "not here" means aborted, because a number is executed
// once and by one session. The server says it only when the number was executed, or its session is
// over. So the answer stays true for ever, also over a restart: the catalog counts session numbers.
// docs/transactions.md has the protocol.
//
// Each step that is logged waits for the drain of the group (cpu_commit.h), which it shares: what
// follows from it is done by finish_group(). Until then the transaction is what it was before.
//
// Invariants: a prepared transaction holds its locks, also after a restart, before any client is
// admitted; its commit record is durable before a write is in place, its abort record before a lock
// is free; its records have room in the log from kLocked on; one step of a transaction waits at a
// time. Bounded: kMost transactions that are not decided, of which one client has kMostOfClient;
// kMostCommitted and kMost that are remembered; half of the shard log. Threads: the server's.
// Lifetimes: what is borrowed outlives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "pmstore/layout/shard_record.h"
#include "pmstore/shard/commit_view.h"
#include "pmstore/shard/cpu_commit.h"
#include "pmstore/shard/failure_latch.h"
#include "pmstore/shard/shard_log.h"

namespace pmstore::internal {

class TwoPhase {
 public:
  static constexpr size_t kMost = 1024;           // that are locked or prepared
  static constexpr size_t kMostOfClient = 256;    // of them; the others are for other clients
  static constexpr size_t kMostCommitted = 4096;  // beyond that nothing new is locked
  enum class State : uint8_t { kLocked = 1, kPrepared = 2, kCommitted = 3 };

  TwoPhase(RecordStore& records, ShardLog& log, CpuCommit& commits, FailureLatch& latch)
      : records_(records), log_(log), commits_(commits), latch_(latch) {}

  // Recovery: takes up what the log has pinned, and locks what is undecided again. BadPool.
  Status restore();

  // A Conflict or BackPressure, also of lock(), may come from what waits in the group: then it is
  // worth another try behind the group, and nothing has changed.

  // Locks the writes of a transaction that is new here. Errors as Client::commit(); BackPressure,
  // TooLarge also as ShardLog::reserve(), and BackPressure when this client has too many. After an
  // error nothing is locked.
  Status lock(const CommitView& request, std::span<const ShardParticipant> participants,
              uint64_t now_ns);
  // Validates reads and absences, then logs: prepared behind finish_group(). To be called when the
  // locks at every participant are held. Conflict: what was read has changed. After an error
  // nothing is locked, unless something waits in the group. NotFound: it is not locked here (any
  // more).
  Status prepare(TxId id, std::span<const std::byte> reads, std::span<const std::byte> absences);
  // Visible behind finish_group(); again does nothing. NotFound: it is not prepared here.
  // `known_through`: as ShardDecision. CHECK, also of abort(): no step of it waits.
  Status commit(TxId id, uint64_t known_through);
  // Unlocked behind finish_group(), or at once what was only locked; nothing when it is not here.
  // Conflict: it was committed.
  Status abort(TxId id, uint64_t known_through);
  // What waits is durable: does what follows from it.
  void finish_group(const DurableLog& logged);
  // It may be durable, or not, and the failure is latched: all stays locked.
  void abandon_group();
  size_t waiting() const { return waiting_.size(); }
  bool is_waiting(TxId id) const;

  // Every participant has the decision of `id`, or of all numbers of its session through `id`.
  void forget(TxId id);
  void forget_through(TxId id);
  // The session of `id` is over: what it has only locked is given up.
  void end_session(TxId id);

  // The same of what was locked before `ns` by lock()'s clock.
  void give_up_locked_before(uint64_t ns);

  // nullopt: not here.
  std::optional<State> state(TxId id) const;
  bool empty() const { return transactions_.empty(); }
  // Some are locked or prepared.
  bool has_undecided() const { return transactions_.size() > committed_; }
  size_t count(State state) const;
  // Of one that is prepared or committed here.
  struct Part {
    const std::vector<ShardParticipant>& participants;
    size_t locked = 0;       // so many keys
    uint64_t locked_ns = 0;  // by lock()'s clock; 0: before the start
  };
  Part part(TxId id) const;
  // Those that are prepared or committed, in the order of their names.
  std::vector<TxId> open_transactions() const;

 private:
  // What has been logged and waits for the drain.
  enum class Step : uint8_t { kNone, kPrepare, kCommit, kAbort };
  struct Shared {
    State state = State::kLocked;
    CommitPlan* plan = nullptr;  // until it is decided
    uint64_t locked_ns = 0;
    std::vector<ShardParticipant> participants;
    Step step = Step::kNone;
    uint64_t end_lsn = 0;  // behind what waits
  };
  // In the order of their names: those of one session lie together, oldest first.
  using Transactions = std::map<TxId, Shared>;

  void give_up(Transactions::iterator at);
  Status take_up(TxId id);
  Transactions::iterator first_of_session(TxId id);
  Transactions::iterator forget(Transactions::iterator at);
  void wait(Transactions::iterator at, Step step, uint64_t end_lsn);
  void finish_step(Transactions::iterator at, const DurableLog& logged);
  // It is not undecided any more.
  void leave(ClientId client);
  bool is_idle_lock(const Shared& shared) const {
    return shared.state == State::kLocked && shared.step == Step::kNone;
  }

  RecordStore& records_;
  ShardLog& log_;
  CpuCommit& commits_;
  FailureLatch& latch_;
  Transactions transactions_;
  size_t committed_ = 0;       // of them
  std::vector<TxId> waiting_;  // in the order in which they were logged
  std::unordered_map<ClientId, size_t, HashOfClientId> undecided_;  // of each client
};

}  // namespace pmstore::internal
