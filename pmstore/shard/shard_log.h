// ShardLog: the redo log of lock discipline cpu: one log::Ring to which the server appends the
// transactions of all its clients (pmstore/layout/shard_record.h).
//
// Transactions that wait at the same time are appended side by side, and one drain makes them
// durable. So a client needs no room of its own in the pool.
//
// Truncation: when there is no room, the oldest part of the log goes, in steps of kStepBytes, or as
// much as a transaction needs, or eight times the mark. First a coordinator mark is appended, and
// the writes of the redo records that go are flushed to their slots; one drain makes both durable;
// then the log's header moves its start. A crash in between leaves a mark whose truncation has not
// happened: the next start ends it.
//
// Transactions of several servers (two_phase.h) pin their record: the redo record until the
// decision, the commit record until every participant has it. A truncation appends a copy of what
// is pinned, behind the mark. So a transaction whose coordinator is gone takes the room of its own
// record, not that of the log behind it.
//
// Invariants: a redo record leaves the log only when its writes are durable in their slots, or
// when its transaction was aborted, or as a copy; and only while no transaction is appended but not
// applied; behind each record there is room for the mark of the next truncation, for copies of what
// is pinned, and for the decisions about it; a decision lies behind each copy of its redo record;
// committed_ has the committed transactions whose redo or commit records are in the log, in order.
// Threads: the server's. Lifetimes: what is borrowed outlives it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "log/ring.h"
#include "persist/memory.h"
#include "persist/persisted.h"
#include "pmstore/layout/shard_record.h"
#include "pmstore/shard/coordinators.h"
#include "pmstore/shard/failure_latch.h"
#include "pmstore/shard/record_store.h"
#include "pmstore/shard/written_slots.h"

namespace pmstore::internal {

// Proves that the shard log is durable below an LSN.
class DurableLog {
 public:
  bool covers(uint64_t end_lsn) const { return end_lsn <= below_lsn_; }
  persist::Persisted persisted() const { return persisted_; }

 private:
  friend class ShardLog;
  DurableLog(persist::Persisted persisted, uint64_t below_lsn)
      : persisted_(persisted), below_lsn_(below_lsn) {}
  persist::Persisted persisted_;
  uint64_t below_lsn_;
};

// Walks a shard log that TableCatalog::open_log() has just opened, and checks each record; gives
// their number. `visit` sees each. BadPool; VersionMismatch: a later release has written there.
Result<uint64_t> walk_shard_log(
    log::Ring& log, const TableCatalog& catalog,
    const std::function<void(const log::EntryView&, ShardRecordReader&)>& visit = {});

struct HashOfTxId {
  size_t operator()(const TxId& id) const { return HashOfClientId()(id.client) + id.sequence; }
};

// What a shard log says of the transactions of several servers. See each record of a walked log,
// in order.
class SharedFates {
 public:
  void see(const log::EntryView& entry, const ShardRecordReader& record);
  // Is the redo record to be put in place? Of a transaction of this server alone it is.
  bool is_committed(const log::EntryView& entry, const ShardRecordReader& redo) const {
    return !redo.is_shared() || committed_.contains({redo.client(), entry.sequence});
  }
  // Redo records that no decision follows, by the LSN of the last copy.
  const std::unordered_map<TxId, uint64_t, HashOfTxId>& undecided() const { return undecided_; }

 private:
  std::unordered_set<TxId, HashOfTxId> committed_;
  std::unordered_map<TxId, uint64_t, HashOfTxId> undecided_;
};

class ShardLog {
 public:
  // The redo records of small transactions in so many bytes keep the executor for some 0.2 ms.
  static constexpr uint64_t kStepBytes = 128u << 10;
  // Where a drain is an msync, which waits for a disk: fewer and larger steps.
  static constexpr uint64_t kStepBytesOfADisk = 1u << 20;
  // Of one transaction, however large the log is: no larger one fits in a request (fabric/rpc.h).
  static constexpr uint64_t kMostPayloadBytes = (2u << 20) - 1024;

  ShardLog(RecordStore& records, FailureLatch& latch);

  // Recovery hands over the log, walked and durable, after its redo records were put in place. Ends
  // a truncation that a crash has interrupted, and begins a new incarnation; durable on return.
  // BadPool; Io; Full as log::Ring::take_over().
  Status begin(log::Ring ring);

  // Of the largest transaction.
  uint64_t max_payload_bytes() const { return max_payload_bytes(ring_bytes_); }
  static uint64_t max_payload_bytes(uint64_t log_bytes);

  // Appends the redo record of `id`, which lies in `scratch` as log::Ring::append_in() says; gives
  // the LSN behind it. Not durable before drain(). BackPressure: there is room only behind
  // make_room(). Full as log::plan_entry().
  Result<uint64_t> append(TxId id, std::span<std::byte> scratch, uint64_t payload_bytes);
  // Truncates a step, and at least enough for such a payload. Everything that was appended is
  // applied (CHECK). BadPool; Io, which latches a failure.
  Status make_room(uint64_t payload_bytes);
  // Makes the writes of the redo records below `through_lsn` durable in place, then truncates
  // there; as make_room().
  Status truncate_through(uint64_t through_lsn);
  // Makes durable what was appended. Io.
  Result<DurableLog> drain();
  // What follows from one of the appended records is done: its writes are in place, or its
  // transaction counts as prepared or aborted.
  void applied() {
    PMSTORE_CHECK(unapplied_ > 0, "a redo record is logged before its writes are in place");
    --unapplied_;
  }

  // ---- transactions of several servers ----

  // Reserves room for the records of `id`: a redo record of this size, its decision, and copies of
  // both. Truncates where that is needed and possible. TooLarge: it can never have the room;
  // BackPressure: others have it. Io, BadPool: as make_room().
  Status reserve(TxId id, uint64_t redo_bytes, size_t participants);
  // Appends the redo record, as append(), into the room that is reserved, and pins it. Not durable
  // before drain(); applied() behind it. Gives the LSN behind it, as those below. CHECK: `id` has
  // reserved, and nothing was appended.
  Result<uint64_t> append_prepared(TxId id, std::span<std::byte> scratch, uint64_t payload_bytes);
  // Appends the commit record, and pins it instead of the redo record. CHECK: the redo record is
  // pinned. It is applied() when its writes are in place.
  Result<uint64_t> append_commit(TxId id, std::span<const std::byte> record);
  // Appends the abort record; from here on nothing of `id` is pinned. CHECK: as above. It is
  // applied() when nothing is locked.
  Result<uint64_t> append_abort(TxId id, std::span<const std::byte> record);
  // Nothing of `id` is pinned, and no room is reserved, from here on. CHECK: something was.
  void unpin(TxId id);
  // Reads the record that `id` has pinned.
  log::EntryView pinned(TxId id) const;
  // Those that recovery has found: transactions that are undecided, or committed and not known to
  // be so everywhere.
  std::vector<TxId> pinned_transactions() const;
  uint64_t reserved_bytes() const { return reserved_; }
  // What no truncation can free, with the space around entries at its largest: what is reserved,
  // and what is pinned. A record that is logged in the room for it leaves that as it is.
  uint64_t held_bytes() const { return held_; }
  // Called whenever less is held than before.
  void on_less_held(std::function<void()> then) { less_held_ = std::move(then); }
  // So much room the last append() lacked; 0: it had room. Another one has none before so much less
  // is held, but for space around entries.
  uint64_t missing_bytes() const { return missing_bytes_; }

  // The client of `through` knows the outcomes of its numbers of that session through this one.
  void known(TxId through) { coordinators_.known(through); }
  // Called before each truncation, so that clients' known() need not be told with each request.
  void before_truncation(std::function<void()> ask) { ask_what_is_known_ = std::move(ask); }

  // Is `id` in the log?
  bool has(TxId id) const;
  // Of a transaction that is not in the log; nullopt: it is not known any more.
  std::optional<Outcome> outcome_outside(TxId id) const { return coordinators_.outcome(id); }
  bool all_applied() const { return unapplied_ == 0; }

  // Flushes the slots that the log's redo records describe; durable after a drain. BadPool.
  Status flush_in_place();

  const log::Ring& ring() const { return *ring_; }

 private:
  static uint64_t most_mark_bytes(uint64_t log_bytes);
  static uint64_t room_for_mark(uint64_t log_bytes);
  uint64_t epoch() const { return records_.catalog().header().epoch; }
  // What a transaction of several servers has in the log, and room for what will follow.
  struct Pin {
    static constexpr uint64_t kNotLogged = UINT64_MAX;
    uint64_t lsn = kNotLogged;
    uint64_t redo_room = 0;      // of one redo record, wherever it lies
    uint64_t decision_room = 0;  // of one commit record
    bool committed = false;
    uint64_t room() const {
      if (lsn == kNotLogged) return 2 * (redo_room + decision_room);
      return committed ? decision_room : redo_room + 2 * decision_room;
    }
    // With the record that is pinned.
    uint64_t held() const {
      if (lsn == kNotLogged) return room();
      return room() + (committed ? decision_room : redo_room);
    }
  };
  void set_pin(TxId id, const Pin& pin);
  void count_pin(const Pin& before, const Pin& after);
  // Of a walk in restore().
  void note_pin(TxId id, const log::EntryView& entry, const ShardRecordReader& record);
  Status append_copies(const std::vector<uint64_t>& lsns);
  // Reads the redo records below `through_lsn` into slots_. Gives the LSN behind the last entry,
  // counts the committed transactions, and lists what is pinned. BadPool: the log is damaged.
  struct Passed {
    uint64_t end_lsn;
    size_t transactions;
    std::vector<uint64_t> pinned;
    uint64_t pinned_room;  // of their copies
  };
  Result<Passed> read_entries(uint64_t through_lsn);
  uint64_t step_bytes() const;
  // Truncates so much that there are `bytes` more of room, if there is so much to truncate.
  Status make_room_of(uint64_t bytes);
  // Moves the start: `in_place` proves that writes and mark are durable.
  Status move_start(persist::Persisted in_place, uint64_t start_lsn);
  Result<CoordinatorMark> restore();

  RecordStore& records_;
  persist::Memory& memory_;
  FailureLatch& latch_;
  uint64_t ring_bytes_;  // with its header
  std::optional<log::Ring> ring_;
  Coordinators coordinators_;
  std::deque<TxId> committed_;
  std::unordered_map<TxId, Pin, HashOfTxId> pins_;
  uint64_t reserved_ = 0;  // the sum of their rooms
  uint64_t held_ = 0;      // the same of held()
  std::function<void()> less_held_;
  uint64_t missing_bytes_ = 0;
  std::function<void()> ask_what_is_known_;
  WrittenSlots slots_;
  uint64_t mark_bytes_ = 0;  // of the last mark that was appended
  uint64_t unapplied_ = 0;   // for ever, once a drain has failed
};

}  // namespace pmstore::internal
