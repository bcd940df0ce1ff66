// RecordMover: moves records out of slabs and frames of which little is used, so that their memory
// goes back (slab_arena_sparse.cc says which). Lock discipline cpu.
//
// A move is a transaction of the server, as of a put that does not fit in the record's slot: the
// same value in another slot, with that slot's next version, a tombstone in the old one, and one
// redo record for both. So a crash, a one-sided reader, and the validation of a read set meet
// nothing else than at such a put. Its number is of a session that no client has, so no client asks
// for its outcome. A record that cannot move is passed over, and its slab or frame stays: one that
// is locked, viewed, damaged, larger than the log takes, or in a bad page of a file. Invariants: a
// step moves at most as many records as its caller says, of kBytesOfEach on average but for the
// last one; what a round has left is not tried again before slots of it are freed. Threads: the
// server's. Lifetimes: what is borrowed outlives it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "pmstore/shard/cpu_commit.h"
#include "pmstore/shard/record_store.h"
#include "pmstore/shard/scan_cursors.h"
#include "pmstore/shard/session_numbers.h"
#include "pmstore/shard/shard_log.h"
#include "pmstore/shard/slot_probe.h"

namespace pmstore::internal {

class RecordMover {
 public:
  // Some 0.1 ms of processor time.
  static constexpr size_t kMostRecords = 16;
  // Where a step waits for a disk, which takes longer than all of them.
  static constexpr size_t kMostRecordsToDisk = 128;
  static constexpr uint64_t kBytesOfEach = 2048;

  RecordMover(RecordStore& records, CpuCommit& commits, ShardLog& log, SessionNumbers& sessions,
              ScanCursors& cursors);

  // Begins where looks_sparse() says so, and goes on: moves at most `most` records, at least 1, of
  // kBytesOfEach on average. False: nothing is left to do. What was moved is durable and visible.
  // Requires that no transaction waits in a group (CHECK). Io, Full: there is no session number;
  // CommitUnknown, which latches a failure.
  Result<bool> step(size_t most = kMostRecords);
  // So many steps, up to the last one, found no room in the log, which undecided transactions hold:
  // they have moved nothing, and the next one tries the same records. 0: the last one did not.
  unsigned waits() const { return waits_; }
  // Behind such a step: not as much of the log was released since as it lacked, or others have
  // taken it again. So the next step would find no room, but for space around entries of the log.
  bool is_held() const;
  // Nothing is being emptied any more; slots that were kept back are handed out.
  void stop();
  uint64_t moved() const { return moved_; }

 private:
  Result<bool> go_on(size_t most);
  // Moves what it finds from index_ on. False: no slot is free for more.
  Result<bool> step_in(const SlabArena::Slab& slab, size_t most);
  void find_movable(const SlabArena::Slab& slab, size_t most);
  Result<bool> move_found(uint32_t from);
  void note_held();
  void end_slab();
  Result<TxId> next_number();
  void end_round();

  RecordStore& records_;
  CpuCommit& commits_;
  ShardLog& log_;
  SessionNumbers& sessions_;
  ScanCursors& cursors_;
  SlotProbe probe_;
  uint64_t next_sequence_ = 0;  // 0: no session yet
  uint64_t end_sequence_ = 0;
  uint32_t before_ = 0;                  // slabs from here on were looked at in this round
  std::optional<SlabArena::Slab> slab_;  // that is being emptied
  uint32_t index_ = 0;                   // of its next slot
  bool held_ = false;                    // the log, when this step wanted to move
  unsigned waits_ = 0;
  uint64_t held_above_ = 0;        // and it is while more than that is held
  std::vector<SlotOffset> slots_;  // of one step
  uint64_t moved_ = 0;
};

}  // namespace pmstore::internal
