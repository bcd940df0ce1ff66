// TableDrop: drops tables. The drop itself is one durable step; the slots of the table's records
// are freed afterwards, some per call.
//
// docs/store.md, Tables, says why the drop is one 8-byte store, and what may be left of a dropped
// table. Threads: the server's. Lifetimes: what is borrowed outlives it and its coroutines.
#pragma once

#include <cstdint>
#include <set>

#include "base/task.h"
#include "pmstore/shard/cpu_commit.h"
#include "pmstore/shard/failure_latch.h"
#include "pmstore/shard/record_store.h"
#include "pmstore/shard/table_scan.h"
#include "pmstore/shard/word_changer.h"

namespace pmstore::internal {

class TableDrop {
 public:
  TableDrop(RecordStore& records, const CpuCommit& cpu, FailureLatch& latch)
      : records_(records), cpu_(cpu), latch_(latch) {}

  // Requires that the table exists. Durable on return: the table does not exist any more, and its
  // records never come back; their slots are still to be freed. Io, which latches a failure: after
  // a crash the table may or may not exist.
  Status drop(TableId table);

  // How far the slots of one dropped table are freed.
  struct Cursor {
    uint64_t position = 0;  // see TableScan
    bool met_lock = false;  // a record was locked in this pass: one more pass follows
    bool done = false;      // no client can read or change a record of the table any more
  };
  // Bounds the time of one call: each slot may change the index, which may merge buckets.
  static constexpr size_t kFreedPerCall = 512;
  // Frees at most so many slots from the cursor on. Lock words are changed by `changer`, or by this
  // CPU when it is nullptr (LockDiscipline::kCpu). Nothing is durable, nor needs to be: a start
  // frees the slots of dropped tables as well. While a client or a prepared transaction is about to
  // write a record of the table, the call changes nothing. After an error, the same call again.
  base::Task<Status> free_slots(WordChanger* changer, TableId table, Cursor& cursor);
  // Slots of a dropped table are still to be freed.
  bool under_way() const { return !unfinished_.empty(); }

 private:
  void free_by_cpu(SlotOffset slot, const IndexKey& key);
  base::Task<Status> free_by_rnic(WordChanger& changer, SlotOffset slot, TableId table,
                                  Cursor& cursor);

  RecordStore& records_;
  const CpuCommit& cpu_;
  FailureLatch& latch_;
  std::set<TableId> unfinished_;
};

}  // namespace pmstore::internal
