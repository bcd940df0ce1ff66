// RecordMover: moves records out of slabs and frames of which little is used, so that their memory
// goes back (slab_arena_sparse.cc says which). Lock discipline cpu.
//
// A move is a transaction of the server, as of a put that does not fit in the record's slot: the
// same value with the next version in another slot, a tombstone in the old one, one redo record for
// both. So a crash, a one-sided reader, and the validation of a read set meet nothing else than at
// such a put. Its number is of a session that no client has, and nobody asks for its outcome.
// Invariants: a step moves at most kMostRecords records, of kMostBytes but for the last one; a
// round that has emptied nothing is the last one, until slots are freed. Threads: the server's.
// Lifetimes: what is borrowed outlives it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "pmstore/shard/cpu_commit.h"
#include "pmstore/shard/record_store.h"
#include "pmstore/shard/session_numbers.h"
#include "pmstore/shard/shard_log.h"

namespace pmstore::internal {

class RecordMover {
 public:
  // Some 0.1 ms of processor time.
  static constexpr size_t kMostRecords = 16;
  static constexpr uint64_t kMostBytes = 32 << 10;

  RecordMover(RecordStore& records, CpuCommit& commits, ShardLog& log, SessionNumbers& sessions);

  // Begins where looks_sparse() says so, and goes on. False: nothing is left to do. What was moved
  // is durable and visible. Requires that no transaction waits in a group (CHECK). Io, Full:
  // there is no session number; CommitUnknown, which latches a failure.
  Result<bool> step();
  // Nothing is being emptied any more; slots that were kept back are handed out.
  void stop();
  uint64_t moved() const { return moved_; }

 private:
  Result<bool> step_in(const SlabArena::Slab& slab);
  Result<TxId> next_number();
  bool end_round();

  RecordStore& records_;
  CpuCommit& commits_;
  ShardLog& log_;
  SessionNumbers& sessions_;
  uint64_t next_sequence_ = 0;  // 0: no session yet
  uint64_t end_sequence_ = 0;
  uint32_t before_ = 0;                  // slabs from here on were looked at in this round
  std::optional<SlabArena::Slab> slab_;  // that is being emptied
  uint32_t index_ = 0;                   // of its next slot
  bool emptied_ = false;                 // a slab, in this round
  std::vector<SlotOffset> slots_;        // of one step
  uint64_t moved_ = 0;
};

}  // namespace pmstore::internal
