// CpuCommit: transactions of LockDiscipline::kCpu, where only the server's CPU changes lock words.
//
// A transaction is prepared, then committed or given up. prepare() validates the reads, locks the
// records that will be written, allocates slots, and builds the redo record; nothing of it is
// visible but the locks. Prepared::commit() appends the redo record to the shard log, waits until
// it is durable, puts the records in place, and only then unlocks any of them. Several transactions
// may share that wait: join_group() prepares one and appends its redo record; finish_group() drains
// once, then applies all in the order in which they joined. No call suspends, so the server's other
// work never sees a half-done step. Between join_group() and finish_group() it sees what one-sided
// readers may see at any time (docs/transactions.md): lock words and versions of index units that
// say that a commit is under way. Several transactions may be prepared at the same time: prepare()
// answers Conflict when another one, prepared or in the group, has locked a record or inserts the
// same key.
//
// A transaction that joins may write a record that the group writes already: its write builds on
// the last one there. So a key that many write at the same time costs a group one drain, not one
// for each. Nothing is answered before that drain: where the answer would follow from a planned
// write (an insert of a key, or the end of an erased one), the transaction is a Conflict, and comes
// again behind the group. Nothing builds on a transaction that is only prepared.
//
// A transaction of several servers is held on a plan of its own from its locks to its decision
// (two_phase.h). Others meet it as a Conflict. While its reads are not validated, nobody else
// changes the units of the index in which it changes keys and has found keys absent (guarded).
//
// Invariants: a redo record is durable before the first byte of its writes is put in place; the log
// is truncated only while no transaction is in the group, so each entry that leaves it is applied;
// the log has a write behind the one that it builds on, so no crash leaves it alone; the word of a
// record is locked from its first planned write until the last one is in place; the index entry of
// a key changes once in a group.
// Threads: the server's. Lifetimes: what is borrowed outlives it, and it outlives every Prepared.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "persist/persisted.h"
#include "pmstore/shard/commit_plan.h"
#include "pmstore/shard/commit_view.h"
#include "pmstore/shard/failure_latch.h"
#include "pmstore/shard/record_store.h"
#include "pmstore/shard/shard_log.h"

namespace pmstore::internal {

class CpuCommit {
 public:
  // So many transactions may be prepared at the same time. The first plan has memory for the
  // largest redo record. The others are made when they are first needed, and keep
  // CommitPlan::kKeptBytes each; what they need beyond it is bounded by the shard log, which has
  // room for all of a group.
  static constexpr size_t kMostPrepared = 512;

  CpuCommit(RecordStore& records, ShardLog& log, FailureLatch& latch);
  ~CpuCommit();

  // A transaction whose writes are locked. Destroying it gives the transaction up: no trace of it
  // stays.
  class Prepared {
   public:
    Prepared(Prepared&& other) noexcept
        : commit_(other.commit_), plan_(std::exchange(other.plan_, nullptr)) {}
    Prepared& operator=(Prepared&&) = delete;
    ~Prepared() {
      if (plan_ != nullptr) commit_->give_up(*plan_);
    }
    // All or nothing, once, while no transaction is in the group (CHECK); durable and visible on
    // success. After an error the transaction
    // was given up: TooLarge; BackPressure; Io; CommitUnknown when the redo record may or may not
    // be durable, and then the failure is latched.
    Status commit();

   private:
    friend class CpuCommit;
    Prepared(CpuCommit& commit, CommitPlan& plan) : commit_(&commit), plan_(&plan) {}
    CpuCommit* commit_;
    CommitPlan* plan_;  // nullptr once committed, given up, or moved from
  };

  // Requires that the request writes something. The request is not needed after the call. Nothing
  // is durable. Errors as Client::commit; BackPressure when kMostPrepared are prepared.
  Result<Prepared> prepare(const CommitView& request);

  // prepare() and Prepared::commit() in one step, or only the validation of the reads when the
  // request writes nothing.
  Status commit(const CommitView& request);

  // ---- moves (moved_records.cc) ----

  // May move() move it? It is a live record, and neither locked nor viewed.
  bool is_movable(SlotOffset slot) const { return movable(slot).has_value(); }
  // Moves the records of these slots to slots of SlabArena::allocate_for_move(), in one transaction
  // `id` of the server: the first ones, for which there is room. Gives their number; durable and
  // visible. Requires that each is_movable() and that no transaction is in the group (CHECK).
  // Nothing has changed after Full: there is no slot for the first one; TooLarge: the log does not
  // take them together; Busy: SlabArena::allocate_for_move() is; BackPressure: undecided
  // transactions hold the log. Io; CommitUnknown, and then the failure is latched.
  Result<size_t> move(TxId id, std::span<const SlotOffset> slots);

  // ---- groups ----

  // prepare(), and appends the redo record to the log; nothing is durable before finish_group().
  // The request writes something, and is not needed after the call. After an error the transaction
  // has not joined: those of prepare(), but no Conflict when its writes build on the group's;
  // BackPressure also when the log has room only behind finish_group(); Io, TooLarge as
  // Prepared::commit().
  Status join_group(const CommitView& request);
  // One drain for what was logged. On success all transactions that have joined are durable and
  // visible. After CommitUnknown each of them may or may not be durable; all are given up, and the
  // failure is latched.
  Result<DurableLog> finish_group();
  size_t group_size() const { return group_.size(); }

  // ---- transactions of several servers ----

  // Validates the reads, plans the writes and locks them, with a redo record that names
  // `participants`. The request is not needed after the call. Nothing is durable. Errors of
  // prepare(), which never come from `participants`.
  Result<CommitPlan*> hold(const CommitView& request,
                           std::span<const ShardParticipant> participants);
  // Recovery: locks again what an undecided redo record writes. Requires that its new slots are not
  // free, and that the index is complete. BadPool: the record does not fit the store.
  Result<CommitPlan*> hold_again(TxId id, std::span<const std::byte> redo);
  // Of a plan that is held: the locks are as they were; whatever else was read is unchanged.
  // Conflict; InvalidArgument as check_reads().
  Status validate_held(const CommitPlan& plan, std::span<const std::byte> reads,
                       std::span<const std::byte> absences);
  // Others may change the units of the index again.
  void end_guard(CommitPlan& plan);
  // Puts the writes in place and unlocks them: `decided` covers the end of the commit record. The
  // plan is gone.
  void apply_held(const DurableLog& decided, CommitPlan& plan, uint64_t end_lsn);
  // Of a transaction that writes here alone: as join_group(); the plan is gone behind
  // finish_group(). After an error it is held as before.
  Status join_held(CommitPlan& plan);
  // Unlocks, and leaves no trace. The plan is gone.
  void give_up_held(CommitPlan& plan);
  bool has_held_in(TableId table) const;

  // Does a transaction that is prepared, held, or in the group write to `table`?
  bool has_prepared_in(TableId table) const {
    return locked_ > 0 && (writes_to(plans_, table) || has_held_in(table));
  }

 private:
  // nullptr when kMostPrepared are in use.
  CommitPlan* free_plan() {
    CommitPlan* const first = plans_.front().get();
    return first->is_free() ? first : another_free_plan();
  }
  CommitPlan* another_free_plan();
  // On what the writes of a transaction may build.
  enum class Basis : uint8_t { kInPlace, kInPlaceOrGroup };
  Status plan_transaction(CommitPlan& plan, const CommitView& request, Basis basis);
  Status plan_writes(CommitPlan& plan, const CommitView& request, Basis basis);
  Status find_record(PlannedWrite& write, Basis basis);
  Status plan_write(PlannedWrite& write, uint64_t expected_slot, uint64_t expected_version,
                    Basis basis);
  using Plans = std::vector<std::unique_ptr<CommitPlan>>;
  static bool writes_to(const CommitPlan& plan, TableId table);
  static bool writes_to(const Plans& plans, TableId table);
  static bool inserts(const Plans& plans, const IndexKey& key);
  bool is_inserted_by_held(const IndexKey& key) const;
  bool is_inserted_by_another(const IndexKey& key) const;
  bool is_guarded(const IndexKey& key) const;
  std::optional<PlannedWrite> movable(SlotOffset slot) const;
  Status plan_move(PlannedWrite& write);
  Status plan_moves(CommitPlan& plan, std::span<const SlotOffset> slots);
  Status guard(CommitPlan& plan, std::span<const std::byte> absences);
  void note_held(std::unique_ptr<CommitPlan> plan);
  // Nobody meets it any more as held. nullptr: it is one of plans_.
  std::unique_ptr<CommitPlan> release_held(CommitPlan& plan);
  Status plan_again(CommitPlan& plan, std::span<const std::byte> redo);
  Status lock_again(PlannedWrite& write);
  // The group's last write of the key; nullptr: there is none, or looking would take long.
  PlannedWrite* last_in_group(const IndexKey& key);
  void leave_group();
  Status build_redo(CommitPlan& plan, std::span<const ShardParticipant> participants = {});
  Status append_to_group(CommitPlan& plan);
  // After an error the plan is as before.
  Status log_in_group(CommitPlan& plan);
  Status log_and_apply(CommitPlan& plan);
  void apply(const DurableLog& logged, CommitPlan& plan);
  void give_up(CommitPlan& plan);
  void end(CommitPlan& plan);

  RecordStore& records_;
  ShardLog& log_;
  FailureLatch& latch_;
  Plans plans_;
  size_t next_plan_ = 0;            // where the search for a free one begins
  std::vector<CommitPlan*> group_;  // in state kLogged, in the order in which they joined
  size_t group_writes_ = 0;         // of the transactions in group_
  size_t locked_ = 0;               // plans in state kPrepared or kLogged, held ones too
  // Plans of transactions of several servers; what they insert, by the hash of the key; and the
  // units that they guard.
  std::unordered_map<const CommitPlan*, std::unique_ptr<CommitPlan>> held_;
  std::unordered_multimap<uint64_t, const PlannedWrite*> held_inserts_;
  std::unordered_multiset<uint64_t> guarded_;
};

}  // namespace pmstore::internal
