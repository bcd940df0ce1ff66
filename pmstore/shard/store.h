// Store: the state machine of one pool, without any connection. It owns the parts, each of which
// has a header of its own, and opens and closes them in order.
//
//   RecordStore   slots, lock words, index: what the other parts share     record_store.h
//   ShardLog      the log of the server's own commits (kCpu), truncation   shard_log.h
//   ClientRings   redo rings of coordinators (kRnic), owners, outcomes     client_rings.h
//   CpuCommit     transactions of LockDiscipline::kCpu                     cpu_commit.h
//   TwoPhase      those of several servers                                 two_phase.h
//   RnicCommit    the server's part of LockDiscipline::kRnic               rnic_commit.h
//   RecordMover   records that leave slabs of which little is used       record_mover.h
//   TableScan     pages of a table's records, and its usage                table_scan.h
//   RangeScan     pages of an ordered table, in order                      range_scan.h
//   TableDrop     dropping tables                                          table_drop.h
//   Recovery      all of this from what a pool holds                       recovery.h
//   Checkpoint    what an orderly stop leaves, so that a start is short    checkpoint.h
//
// The functions here pass calls on; errors and durability are said in the header of the part.
// Threads: one. The pool is borrowed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/task.h"
#include "log/ring.h"
#include "persist/pool.h"
#include "pmstore/layout/protocol.h"
#include "pmstore/layout/shard_record.h"
#include "pmstore/server.h"
#include "pmstore/shard/checkpoint.h"
#include "pmstore/shard/client_rings.h"
#include "pmstore/shard/commit_view.h"
#include "pmstore/shard/cpu_commit.h"
#include "pmstore/shard/failure_latch.h"
#include "pmstore/shard/range_scan.h"
#include "pmstore/shard/record_mover.h"
#include "pmstore/shard/record_store.h"
#include "pmstore/shard/rnic_commit.h"
#include "pmstore/shard/scan_cursors.h"
#include "pmstore/shard/session_numbers.h"
#include "pmstore/shard/shard_log.h"
#include "pmstore/shard/table_drop.h"
#include "pmstore/shard/table_scan.h"
#include "pmstore/shard/two_phase.h"

namespace pmstore::internal {

class Store {
 public:
  // Recovers, and begins a new epoch. Durable on return. BadPool; Io; VersionMismatch.
  static Result<std::unique_ptr<Store>> open(persist::Pool& pool,
                                             const RecoveryOptions& options = {});
  // Makes everything durable in place, and leaves a checkpoint; then the catalog says that there is
  // nothing to replay. Without a checkpoint, the next open() reads all slots.
  Status close();
  // After close(): why there is no checkpoint; else empty.
  const std::string& no_checkpoint() const { return no_checkpoint_; }

  TableCatalog& catalog() { return records_.catalog(); }
  const TableCatalog& catalog() const { return records_.catalog(); }
  KeyIndex& index() { return records_.index(); }
  SlabArena& arena() { return records_.arena(); }
  LockTable& words() { return records_.words(); }
  persist::Memory& memory() { return records_.memory(); }
  const std::shared_ptr<ViewedSlots>& viewed_slots() const { return records_.viewed_slots(); }
  ClientRings& rings() { return rings_; }
  const ClientRings& rings() const { return rings_; }
  ShardLog& log() { return log_; }
  const ShardLog& log() const { return log_; }
  CpuCommit& cpu() { return cpu_; }
  TwoPhase& two_phase() { return two_phase_; }
  const TwoPhase& two_phase() const { return two_phase_; }
  // All later extents of records begin above the versions of the frames that were given back. So a
  // frame with a higher version stays: only a client that breaks the protocol has made it, and the
  // versions of no other record are lost by it.
  static constexpr uint64_t kMostFreedVersion = kMaxRecordVersion / 2;
  // Gives the extent of `frame`, which SlabArena::empty_frame() has named, back to the pool,
  // durably. `withdraw` takes the rights of devices to it, before. False: the frame stays, and is
  // not named again. Io, which latches a failure.
  Result<bool> give_back_frame(uint32_t frame, const std::function<void()>& withdraw = {});
  // SlabArena::look_at_headers(). Io, which latches a failure.
  Status look_at_headers(uint32_t most);
  // SlabArena::give_back_idle_slabs(). Io, which latches a failure.
  Result<bool> give_back_idle_slabs(uint32_t most, uint32_t kept);
  // Under lock discipline cpu: RecordMover::step(). After an error other than Full a failure is
  // latched.
  Result<bool> move_some_records(size_t most = RecordMover::kMostRecords);
  void stop_moving() { mover_.stop(); }
  // See RecordMover::waits() and is_held().
  unsigned moving_waits() const { return mover_.waits(); }
  bool moving_is_held() const { return mover_.is_held(); }
  uint64_t moved_records() const { return mover_.moved(); }
  const RecoveryReport& recovery() const { return recovery_; }
  void set_recovery_duration(uint64_t us) { recovery_.duration_us = us; }
  // Something could not be made durable.
  bool failed() const { return latch_.failed(); }
  // Io: the answer to every request once failed().
  Error failure() const { return latch_.error(); }
  // Also not the slots that are only reserved.
  uint64_t live_records() const { return records_.index().size() - records_.reservations().size(); }

  // ---- reading ----
  Result<RecordStore::Found> read(TableId table, std::string_view key,
                                  std::span<std::byte> into = {}) const {
    return records_.read(table, key, into);
  }
  void prefetch(TableId table, std::span<const std::string_view> keys) const {
    records_.prefetch(table, keys);
  }
  [[gnu::always_inline]] void prefetch_bucket(const IndexKey& key) const {
    records_.prefetch_bucket(key);
  }
  [[gnu::always_inline]] void prefetch_record(const IndexKey& key) const {
    records_.prefetch_record(key);
  }
  Result<size_t> get(TableId table, std::string_view key, std::span<std::byte> room) const {
    return records_.get(table, key, room);
  }
  // As TableScan::page() and usage(), with the cursors of ScanCursors. Trimmed: records have moved
  // since the first page.
  Result<size_t> scan(ScanRequest request, std::span<std::byte> room);
  Result<ScanReply> scan(ScanRequest request, TableScan::Page& page);
  Result<TableUsageReply> table_usage(TableId table, uint64_t cursor);
  const ScanCursors& scan_cursors() const { return cursors_; }
  Result<size_t> range_scan(const RangeScanRequest& request, OrderedIndex::Range range,
                            std::span<std::byte> room) const {
    return RangeScan(records_).page(request, range, room);
  }
  Result<RangeScan::Head> range_scan(const RangeScanRequest& request, OrderedIndex::Range range,
                                     uint64_t most_bytes, RangeScan::Page& page) const {
    return RangeScan(records_).page(request, range, most_bytes, page);
  }
  // Only how many keys the index of an ordered table has. UnknownTable.
  Result<TableUsageReply> ordered_usage(TableId table) const {
    return TableScan(records_).ordered_usage(table);
  }
  // Of a transaction that is not in flight. `own`: its client asks, and says that it has ended.
  // OutcomeExpired when nothing here knows any more; InvalidArgument for a number that belongs to
  // no session yet and may still commit; CommitUnknown: it is prepared here, and undecided.
  // Requires that no group waits for its drain (CHECK). Io.
  Result<Outcome> outcome(TxId id, bool own, uint64_t now_ns) const;

  // ---- tables ----
  // As TableCatalog::create_table(); Io latches a failure.
  Result<TableId> create_table(std::string_view name, TableKind kind = TableKind::kHash);
  Status drop_table(TableId table) { return drops_.drop(table); }
  base::Task<Status> free_dropped(WordChanger* changer, TableId table, TableDrop::Cursor& cursor) {
    return drops_.free_slots(changer, table, cursor);
  }

  // ---- sessions ----
  // The first transaction number of a new session under discipline kCpu. Full; Io.
  Result<uint64_t> begin_session();
  // Under discipline kRnic: ClientRings::take() for a new session. Full; Io; BadPool.
  Status take_ring(uint32_t index, ClientId client, uint64_t outcomes_until_ns, uint64_t now_ns);
  // ClientRings::make(), and give_back() of a ring that nobody owns any more.
  Result<uint32_t> make_ring() { return rings_.make(); }
  // ClientRings::zero_ahead().
  Result<bool> zero_ahead_of_rings(uint64_t most_bytes) { return rings_.zero_ahead(most_bytes); }
  Status give_back_ring(uint32_t index) { return rings_.give_back(index); }
  // No session has had a number from here on.
  uint64_t end_of_sessions() const { return first_sequence_of(sessions_.last() + 1); }
  uint64_t session_sequence(uint32_t index) const {
    return first_sequence_of(rings_.session(index));
  }
  Status truncate_through(log::Ring& ring, uint64_t through_lsn) {
    return rings_.truncate_through(ring, through_lsn);
  }

  // ---- discipline kCpu ----
  void set_sole_writer() { records_.set_sole_writer(); }
  Status commit(const CommitView& request) { return cpu_.commit(request); }
  Status join_group(const CommitView& request) { return cpu_.join_group(request); }
  uint64_t max_redo_bytes() const { return log_.max_payload_bytes(); }
  // One drain for all that was logged: the transactions of join_group(), and the steps of
  // two_phase(). On success each is durable, and what follows from it is done. CommitUnknown: each
  // may or may not be durable, and the failure is latched. Something was logged (CHECK).
  Result<persist::Persisted> finish_group();
  size_t group_size() const { return cpu_.group_size() + two_phase_.waiting(); }

  // ---- discipline kRnic ----
  base::Task<Result<ReserveReply>> reserve(WordChanger& changer, uint16_t owner, TableId table,
                                           std::string_view key, uint32_t value_bytes, bool move,
                                           ReserveFor transaction = {}) {
    return rnic_.reserve(changer, owner, table, key, value_bytes, move, transaction);
  }
  Status validate(uint16_t owner, const CommitView& request) const {
    return rnic_.validate(owner, request);
  }
  base::Task<Status> release(WordChanger& changer, uint16_t owner, SlotOffset slot) {
    return rnic_.release(changer, owner, slot);
  }
  base::Task<Status> apply(WordChanger& changer, uint16_t owner, std::span<const std::byte> redo) {
    return rnic_.apply(changer, owner, redo);
  }
  base::Task<Status> resolve(WordChanger& changer, uint16_t owner, log::Ring& ring,
                             std::span<const SlotOffset> announced) {
    return rnic_.resolve(changer, owner, ring, announced);
  }

 private:
  Store(persist::Pool& pool, TableCatalog catalog, SlabArena arena, LockTable words,
        KeyIndex index);
  // With what the checkpoint has of the slabs, if there is one. Damaged: it is damaged.
  static Result<std::unique_ptr<Store>> make(persist::Pool& pool,
                                             const CheckpointReader* checkpoint);
  // False: the checkpoint does not count, and nothing has begun; this object must be discarded.
  // nullptr: no checkpoint is asked.
  Result<bool> recover(const RecoveryOptions& options, const CheckpointReader* checkpoint);
  Status begin(log::Ring log);
  Status write_checkpoint(persist::Persisted in_place);

  FailureLatch latch_;
  RecordStore records_;
  ScanCursors cursors_;
  SessionNumbers sessions_;
  ClientRings rings_;
  ShardLog log_;
  CpuCommit cpu_;
  TwoPhase two_phase_;
  RecordMover mover_;
  RnicCommit rnic_;
  TableDrop drops_;
  RecoveryReport recovery_;
  std::string no_checkpoint_;
};

}  // namespace pmstore::internal
