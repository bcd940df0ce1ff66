// Recovery: makes a store of what a pool holds after a crash or an orderly end.
//
// docs/recovery.md has the order of the steps and why: first what the redo rings say is put in
// place, so that a record that a crash has torn is whole again before its slot is read; then index
// and lock words are rebuilt from the slots. The caller begins a new epoch afterwards.
// Threads: one, before any connection is accepted. Everything is borrowed.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "log/ring.h"
#include "pmstore/layout/shard_record.h"
#include "pmstore/server.h"
#include "pmstore/shard/client_rings.h"
#include "pmstore/shard/record_store.h"
#include "pmstore/shard/slot_reader.h"

namespace pmstore::internal {

class Recovery {
 public:
  explicit Recovery(RecordStore& records)
      : records_(records), slots_(records.arena(), records.catalog()) {}

  // Opens the rings, makes what they hold durable, puts it in place, and hands them to `rings`.
  // What is put in place is not durable: the ring keeps its entries. BadPool; Io.
  Status replay_rings(ClientRings& rings);
  // The same with the shard log, which it gives. Of transactions of several servers it puts those
  // in place that were committed, and keeps the slots of undecided ones from being free.
  // VersionMismatch: a later release wrote there.
  Result<log::Ring> replay_log();
  // Requires replay_rings() and replay_log(). BadPool when a table was lost;
  // Full when an ordered table's index gets no memory.
  Status rebuild_index();

  const RecoveryReport& report() const { return report_; }

 private:
  void replay_entry(const log::EntryView& entry);
  void replay(ShardRecordReader& redo);
  void free_slot(SlotOffset slot);
  void rebuild_slot(const SlabArena::Slab& slab, SlotOffset slot);
  struct TableKey {
    TableId table;
    std::string_view key;
  };
  void index_record(TableKey found, uint8_t size_class, SlotOffset slot);
  void index_ordered();
  std::string_view key_in(SlotOffset slot) const;

  // A live record of an ordered table, to be indexed when all are known.
  struct OrderedRecord {
    uint64_t key_begin;
    SlotOffset slot;
    TableId table;
    uint8_t size_class;
  };

  RecordStore& records_;
  SlotReader slots_;
  std::vector<OrderedRecord> ordered_;
  RecoveryReport report_;
  std::vector<SlotOffset> damaged_;
  std::unordered_set<uint64_t> held_;  // slots that undecided transactions write
  uint64_t highest_version_ = 0;
  uint16_t lost_table_ = 0;
  bool rings_replayed_ = false;
  Status indexed_;
};

}  // namespace pmstore::internal
