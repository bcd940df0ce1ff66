// Recovery: makes a store of what a pool holds after a crash or an orderly end.
//
// docs/recovery.md has the order of the steps and why: first what the redo rings say is put in
// place, so that a record that a crash has torn is whole again before its slot is read; then index
// and lock words come from the checkpoint of an orderly stop, or from the slots. The caller begins
// a new epoch afterwards.
// The slots are read by several workers at the same time, a batch of slabs after the other; what
// they find is put together in the order of the slabs, so the result does not depend on them.
// Threads: one, and the workers, before any connection is accepted. Everything is borrowed.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/workers.h"
#include "log/ring.h"
#include "pmstore/layout/shard_record.h"
#include "pmstore/server.h"
#include "pmstore/shard/checkpoint_reader.h"
#include "pmstore/shard/client_rings.h"
#include "pmstore/shard/record_store.h"
#include "pmstore/shard/slot_reader.h"

namespace pmstore::internal {

class Recovery {
 public:
  Recovery(RecordStore& records, base::Workers& workers)
      : records_(records), workers_(workers), slots_(records.arena(), records.catalog()) {}

  // Opens the rings, makes what they hold durable, puts it in place, and hands them to `rings`.
  // What is put in place is not durable: the ring keeps its entries. BadPool; Io.
  Status replay_rings(ClientRings& rings);
  // The same with the shard log, which it gives. Of transactions of several servers it puts those
  // in place that were committed, and keeps the slots of undecided ones from being free.
  // VersionMismatch: a later release wrote there.
  Result<log::Ring> replay_log();
  // Requires replay_rings() and replay_log(). BadPool when a table was lost;
  // Full when an ordered table's index gets no memory. Tells `progress` slots read and slots.
  Status rebuild_index(const std::function<void(uint64_t, uint64_t)>& progress);
  // The same from a checkpoint, without reading a slot. `replay` calls replay_rings() and
  // replay_log(); that needs nothing of what is loaded meanwhile. Its errors. Damaged: the
  // checkpoint is not whole, or not of what the pool holds. After an error index and lock words
  // must be discarded.
  Status restore(const CheckpointReader& checkpoint, const std::function<Status()>& replay);

  const RecoveryReport& report() const { return report_; }

 private:
  struct TableKey {
    TableId table;
    std::string_view key;
  };
  // A live record of an ordered table, to be indexed when all are known.
  struct OrderedRecord {
    uint64_t key_begin;
    SlotOffset slot;
    TableId table;
    uint8_t size_class;
  };
  // One of a hash table.
  struct HashedRecord {
    KeyHash hash;
    SlotOffset slot;
    TableId table;
    uint8_t size_class;
  };
  // What a worker found in some slabs.
  struct Found {
    std::vector<HashedRecord> hashed;
    std::vector<OrderedRecord> ordered;
    std::vector<SlotOffset> free;
    std::vector<SlotOffset> damaged;
    uint64_t slots = 0;
    uint64_t tombstones = 0;
    uint64_t highest_version = 0;
    uint16_t lost_table = 0;
  };

  void replay_entry(const log::EntryView& entry);
  void replay(ShardRecordReader& redo);
  void free_slot(SlotOffset slot);
  void read_slabs(std::span<const SlabArena::Slab> slabs, Found& found);
  void read_slot(const SlabArena::Slab& slab, SlotOffset slot, Found& found);
  void take(const Found& found);
  void index_hashed(std::span<const HashedRecord> records);
  void index_record(TableKey found, uint8_t size_class, SlotOffset slot);
  void index_ordered();
  std::string_view key_in(SlotOffset slot) const;

  RecordStore& records_;
  base::Workers& workers_;
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
