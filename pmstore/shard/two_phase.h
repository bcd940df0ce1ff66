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
// Invariants: a prepared transaction holds its locks, also after a restart, before any client is
// admitted; its commit record is durable before a write is in place, its abort record before a lock
// is free; its records have room in the log from kLocked on. Bounded: kMost transactions that are
// not decided, kMostCommitted and kMost that are remembered, and half of the shard log. Threads:
// the server's. Lifetimes: what is borrowed outlives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
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
  static constexpr size_t kMostCommitted = 4096;  // beyond that nothing new is locked
  enum class State : uint8_t { kLocked = 1, kPrepared = 2, kCommitted = 3 };

  TwoPhase(RecordStore& records, ShardLog& log, CpuCommit& commits, FailureLatch& latch)
      : records_(records), log_(log), commits_(commits), latch_(latch) {}

  // Recovery: takes up what the log has pinned, and locks what is undecided again. BadPool.
  Status restore();

  // What logs requires that no transaction waits in the group (CHECK).

  // Locks the writes of a transaction that is new here. Errors as Client::commit(); BackPressure,
  // TooLarge also as ShardLog::reserve(). After an error nothing is locked.
  Status lock(const CommitView& request, std::span<const ShardParticipant> participants,
              uint64_t now_ns);
  // Validates reads and absences, then logs; durable on success. To be called when the locks at
  // every participant are held. Conflict: what was read has changed. After an error nothing is
  // locked, but after CommitUnknown, which is latched. NotFound: it is not locked here (any more).
  Status prepare(TxId id, std::span<const std::byte> reads, std::span<const std::byte> absences);
  // Durable and visible on success; again does nothing. NotFound: it is not prepared here.
  // CommitUnknown, which is latched. `known_through`: as ShardDecision.
  Status commit(TxId id, uint64_t known_through);
  // Durable and unlocked on success; nothing when it is not here. Conflict: it was committed.
  // Io, which is latched: it is not known to be aborted.
  Status abort(TxId id, uint64_t known_through);
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
  size_t count(State state) const;
  // Of one that is prepared or committed here.
  const std::vector<ShardParticipant>& participants(TxId id) const;
  // Those that are prepared or committed, in the order of their names.
  std::vector<TxId> open_transactions() const;

 private:
  struct Shared {
    State state = State::kLocked;
    CommitPlan* plan = nullptr;  // until it is decided
    uint64_t locked_ns = 0;
    std::vector<ShardParticipant> participants;
  };
  // In the order of their names: those of one session lie together, oldest first.
  using Transactions = std::map<TxId, Shared>;

  void give_up(Transactions::iterator at);
  Status take_up(TxId id);
  Transactions::iterator first_of_session(TxId id);
  Transactions::iterator forget(Transactions::iterator at);
  Result<DurableLog> drain();

  RecordStore& records_;
  ShardLog& log_;
  CpuCommit& commits_;
  FailureLatch& latch_;
  Transactions transactions_;
  size_t committed_ = 0;  // of them
};

}  // namespace pmstore::internal
