// ClientRings: the redo rings of a pool, one per client: whose ring each one is, what became of the
// transactions that were logged there, and truncation.
//
// The session that owns a ring has an incarnation, which numbers the sessions of the whole pool;
// its transactions are numbered from session_sequence() on. So no two transactions of a pool have
// the same number of the same client.
// Invariants: a redo record leaves its ring only after the records that it writes are durable in
// their slots; incarnations only grow. Threads: the server's. The records borrowed must outlive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "log/ring.h"
#include "persist/memory.h"
#include "pmstore/shard/failure_latch.h"
#include "pmstore/shard/outcome_book.h"
#include "pmstore/shard/record_store.h"

namespace pmstore::internal {

class ClientRings {
 public:
  ClientRings(RecordStore& records, FailureLatch& latch);

  // Recovery hands over the rings, in order, each after its entries were applied.
  void add(log::Ring ring);
  std::vector<log::Ring>& all() { return rings_; }

  // Ring `index` is `client`'s from here on (0: no client's), in a new incarnation; durable on
  // return. When another client owned the ring, the writes that its redo records describe are made
  // durable in place first, and its outcomes are kept until `outcomes_until_ns` (0: not at all).
  // Full: the pool has numbered as many sessions as it can. BadPool: an entry of the ring is
  // damaged. Io.
  Status take(uint32_t index, uint64_t client, uint64_t outcomes_until_ns, uint64_t now_ns);
  // The first transaction number of the session that owns ring `index`.
  uint64_t session_sequence(uint32_t index) const;

  // Of a transaction that is not in flight. `own`: its client asks, and says that it has ended;
  // then an entry that is in the ring beyond the known tail counts as well. OutcomeExpired when
  // neither ring nor outcome table knows any more; InvalidArgument for a number that belongs to no
  // session yet and may still commit.
  Result<Outcome> outcome(TxId id, bool own, uint64_t now_ns);

  // CpuCommit has appended an entry to a ring; later it has put the entry's writes in place. In
  // between no ring is truncated, and no outcome is told (CHECKs).
  void logged() { ++unapplied_; }
  void applied() {
    PMSTORE_CHECK(unapplied_ > 0, "an entry is in a ring before its writes are in place");
    --unapplied_;
  }

  // Makes the writes of the entries below `through_lsn` durable in place, then truncates there. All
  // of these entries must be applied. BadPool; InvalidArgument, without effect, when the last of
  // them ends behind the tail that is known; Io, which latches a failure.
  Status truncate_through(log::Ring& ring, uint64_t through_lsn);
  // Truncates the older half of the ring's entries, and at least enough for a payload.
  Status make_room(log::Ring& ring, uint64_t payload_bytes);
  // Makes the writes of all entries of all rings durable in place.
  Result<persist::Persisted> make_all_durable_in_place();

 private:
  size_t index_of(const log::Ring& ring) const;
  uint32_t last_incarnation() const;
  // Reads the entries of `ring` below `through_lsn` into passed_. BadPool: one of the ring's
  // entries is damaged.
  Status read_entries(const log::Ring& ring, uint64_t through_lsn);
  // Flushes the slots that the entries in passed_ describe.
  void flush_in_place();
  // Of the entries in passed_: notes that they have committed, and truncates behind the last.
  Status truncate(persist::Persisted in_place, log::Ring& ring);

  // The entries that leave a ring. They are read once, because a client may change its ring
  // meanwhile. Kept between calls for the memory of its vectors.
  struct Passed {
    uint64_t end_lsn = 0;  // the LSN behind the last
    std::vector<uint64_t> sequences;
    std::vector<std::pair<uint64_t, uint64_t>> written;  // slot, bytes
  };

  RecordStore& records_;
  persist::Memory& memory_;
  FailureLatch& latch_;
  std::vector<log::Ring> rings_;
  OutcomeBook outcomes_;
  uint64_t unapplied_ = 0;  // entries of CpuCommit's group; for ever, once a drain has failed
  Passed passed_;
  std::vector<std::byte>
      entry_;  // a copy of one redo record, which its client may change meanwhile
};

}  // namespace pmstore::internal
