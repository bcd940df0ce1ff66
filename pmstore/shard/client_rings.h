// ClientRings: the redo rings of a pool, one per client: whose ring each one is, what became of the
// transactions that were logged there, and truncation.
//
// Rings are made when coordinators come, up to the number that the catalog allows, in extents of
// the pool; an extent is given back when nobody owns any of its rings. Pools of earlier releases
// came with all their rings, which stay.
// Only coordinators of lock discipline rnic log there; ShardLog has the transactions of the other
// one. The incarnation of a ring is the number of the session that owns it (session_numbers.h).
// Invariants: a redo record leaves its ring only after the records that it writes are durable in
// their slots; incarnations only grow; a ring's index is the ring's until it is given back, and a
// ring that has an owner is not given back. Threads: the server's. The records borrowed must
// outlive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/check.h"
#include "log/ring.h"
#include "persist/memory.h"
#include "persist/pool.h"
#include "pmstore/shard/failure_latch.h"
#include "pmstore/shard/outcome_book.h"
#include "pmstore/shard/record_store.h"
#include "pmstore/shard/table_catalog.h"
#include "pmstore/shard/written_slots.h"

namespace pmstore::internal {

// A ring names its client by 64 bits. Another client with the same ones is met neither by chance
// nor, since ids are digests, by trying.
constexpr uint64_t ring_owner(ClientId client) { return client.low; }

class ClientRings {
 public:
  ClientRings(RecordStore& records, FailureLatch& latch);

  // Recovery hands over the rings, each after its entries were applied.
  void add(const TableCatalog::RingPlace& place, log::Ring ring);
  // Indexes are below it: there are never more rings.
  uint32_t most() const { return static_cast<uint32_t>(rings_.size()); }
  uint32_t count() const;  // that there are
  bool has(uint32_t index) const { return index < rings_.size() && rings_[index].ring; }
  log::Ring& at(uint32_t index) {
    PMSTORE_CHECK(has(index), "a ring is given back when nobody has it");
    return *rings_[index].ring;
  }
  const log::Ring& at(uint32_t index) const {
    PMSTORE_CHECK(has(index), "a ring is given back when nobody has it");
    return *rings_[index].ring;
  }
  // The lowest index of rings in a new extent, which nobody owns. Durable on return. Full: there
  // are most(), or the pool has no room; Io.
  Result<uint32_t> make();
  // A part of make(), ahead of it: zeroes at most `most_bytes`, whole XPLines, of the space that
  // the extent would get. True: more is left. Io.
  Result<bool> zero_ahead(uint64_t most_bytes);
  // Gives back the extent of ring `index`, durably, when nobody owns any of its rings. A device
  // must have no right to rings without an owner. Not so in pools that came with their rings. Io;
  // BadPool.
  Status give_back(uint32_t index);
  // The same of all rings: after recovery, and an end of the process between make() and take(), or
  // between take() and give_back().
  Status give_back_unowned();
  // True: it goes when it has no owner.
  bool comes_back(uint32_t index) const { return has(index) && rings_[index].extent; }

  // Ring `index` is `owner`'s from here on (0: no client's), for session `number`, which is above
  // the numbers of all earlier sessions; durable on return. When another client owned the ring, the
  // writes that its redo records describe are made durable in place first, and its outcomes are
  // kept until `outcomes_until_ns` (0: not at all). BadPool: an entry of the ring is damaged. Io.
  Status take(uint32_t index, uint64_t owner, uint32_t number, uint64_t outcomes_until_ns,
              uint64_t now_ns);
  // A device may reach ring `index` for its session, from lend() to end_loan().
  void lend(uint32_t index) {
    PMSTORE_CHECK(has(index) && at(index).owner() != 0 && !rings_[index].lent,
                  "a ring is lent to its owner's session");
    rings_[index].lent = true;
  }
  void end_loan(uint32_t index) {
    PMSTORE_CHECK(has(index) && rings_[index].lent, "each loan ends once");
    rings_[index].lent = false;
  }
  // The number of the session that has taken ring `index` last.
  uint32_t session(uint32_t index) const { return at(index).position().incarnation; }
  // The highest one of all rings that there are.
  uint32_t last_session() const;

  // Of a transaction that is not in flight. `own`: its client asks, and says that it has ended;
  // then an entry that is in the ring beyond the known tail counts as well. nullopt when neither
  // ring nor outcome table knows any more. BadPool: the client's ring is damaged.
  Result<std::optional<Outcome>> outcome(TxId id, bool own, uint64_t now_ns) const;

  // Makes the writes of the entries below `through_lsn` durable in place, then truncates there. All
  // of these entries must be applied. BadPool; InvalidArgument, without effect, when the last of
  // them ends behind the tail that is known; Io, which latches a failure.
  Status truncate_through(log::Ring& ring, uint64_t through_lsn);
  // Flushes the slots that the entries of all rings describe; durable after a drain. BadPool.
  Status flush_in_place();

 private:
  size_t index_of(const log::Ring& ring) const;
  // So many make() makes; 0: there are most().
  uint32_t new_rings() const;
  // Reads the entries of `ring` below `through_lsn` into passed_ and slots_. BadPool: one of the
  // ring's entries is damaged.
  Status read_entries(const log::Ring& ring, uint64_t through_lsn);
  // Of the entries in passed_: notes that they have committed, and truncates behind the last.
  Status truncate(persist::Persisted in_place, log::Ring& ring);

  // The entries that leave a ring. They are read once, because a client may change its ring
  // meanwhile. Kept between calls for the memory of its vectors.
  struct Passed {
    uint64_t end_lsn = 0;  // the LSN behind the last
    std::vector<uint64_t> sequences;
  };

  struct Held {
    std::optional<log::Ring> ring;
    std::optional<persist::Extent> extent;  // that it is given back with
    bool lent = false;                      // a device has a region of it
    bool is_new = false;                    // nobody has had it: all behind its header is zero
  };

  Held& hold(const TableCatalog::RingPlace& place, log::Ring ring);

  RecordStore& records_;
  persist::Memory& memory_;
  FailureLatch& latch_;
  std::vector<Held> rings_;  // as many as there can be; references to rings stay valid
  OutcomeBook outcomes_;
  Passed passed_;
  WrittenSlots slots_;
  std::vector<std::byte>
      entry_;  // a copy of one redo record, which its client may change meanwhile
};

}  // namespace pmstore::internal
