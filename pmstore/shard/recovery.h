// Recovery: makes a store of what a pool holds after a crash or an orderly end.
//
// docs/recovery.md has the order of the steps and why: first what the redo rings say is put in
// place, so that a record that a crash has torn is whole again before its slot is read; then index
// and lock words are rebuilt from the slots. The caller begins a new epoch afterwards.
// Threads: one, before any connection is accepted. Everything is borrowed.
#pragma once

#include <cstdint>

#include "log/ring.h"
#include "pmstore/server.h"
#include "pmstore/shard/client_rings.h"
#include "pmstore/shard/record_store.h"
#include "pmstore/shard/slot_reader.h"

namespace pmstore::internal {

class Recovery {
 public:
  Recovery(RecordStore& records, ClientRings& rings)
      : records_(records), rings_(rings), slots_(records.arena(), records.catalog()) {}

  // Opens the rings, makes what they hold durable, puts it in place, and hands them to the rings.
  // What is put in place is not durable: the ring keeps its entries. BadPool; Io.
  Status replay_rings();
  // Requires replay_rings(). BadPool when a table was lost.
  Status rebuild_index();

  const RecoveryReport& report() const { return report_; }

 private:
  void replay_entry(const log::EntryView& entry);
  void rebuild_slot(const SlabArena::Slab& slab, SlotOffset slot);

  RecordStore& records_;
  ClientRings& rings_;
  SlotReader slots_;
  RecoveryReport report_;
  std::vector<SlotOffset> damaged_;
  uint64_t highest_version_ = 0;
  uint16_t lost_table_ = 0;
};

}  // namespace pmstore::internal
