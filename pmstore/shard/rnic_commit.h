// RnicCommit: the server's part of transactions of LockDiscipline::kRnic, where clients lock
// records by RNIC atomics and write their redo records one-sided.
//
// A client asks for slots of new records (reserve, release), and for its redo record to be applied.
// When it is gone, resolve() finishes what it has logged and undoes the rest. Every change of a
// lock word goes through a WordChanger, which suspends; so other calls run between the steps of
// one call, also for the same slot.
// A client can lock any word and write anything into its ring. So apply() changes only slots that
// `owner` has locked and that are its reservation or hold the key.
//
// `owner` is the session's number in lock words. Threads: the server's executor. Lifetimes: what is
// borrowed, changers included, outlives the coroutines.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/task.h"
#include "log/ring.h"
#include "pmstore/layout/protocol.h"
#include "pmstore/layout/shard_record.h"
#include "pmstore/shard/failure_latch.h"
#include "pmstore/shard/read_checks.h"
#include "pmstore/shard/record_store.h"
#include "pmstore/shard/word_changer.h"

namespace pmstore::internal {

// The transaction for which a slot is reserved.
struct ReserveFor {
  uint64_t sequence = 0;
  bool scanned = false;  // the part of the ordered table in which the key lies
};

class RnicCommit {
 public:
  RnicCommit(RecordStore& records, FailureLatch& latch) : records_(records), latch_(latch) {}

  // Locks a free slot for a new record of `key`, and lets the index show it; for `move` the index
  // keeps showing the old slot. A leaf of an ordered table is in change then, until the redo record
  // is applied or the slot released. Nothing is durable. AlreadyExists when the key is there;
  // Conflict when another client reserves it or has locked it, or others insert keys where the
  // transaction has scanned; Full; errors of WordChanger, after which the slot stays unused until
  // the next start.
  base::Task<Result<ReserveReply>> reserve(WordChanger& changer, uint16_t owner, TableId table,
                                           std::string_view key, uint32_t value_bytes, bool move,
                                           ReserveFor transaction);
  // Undoes a reservation of `owner`. InvalidArgument when the slot is not reserved by it.
  base::Task<Status> release(WordChanger& changer, uint16_t owner, SlotOffset slot);
  // Whether all that transaction `request.sequence` has read is unchanged, but for keys for which
  // it has reserved slots: errors of check_reads(). Nothing is locked: who logs a redo record next
  // calls this while it holds all its locks.
  Status validate(uint16_t owner, const CommitView& request) const {
    return check_reads(records_, request, owner);
  }
  // Puts the writes of one redo record in place where they are newer, changes the index, and
  // unlocks what `owner` holds. Requires that the redo record is durable in its ring; then all of
  // it is durable on return. Visible on return. After an error, repeating the call finishes what
  // could not be unlocked; else repeating it changes nothing.
  base::Task<Status> apply(WordChanger& changer, uint16_t owner, std::span<const std::byte> redo);
  // The client is gone and can reach nothing any more: applies what its ring holds, releases its
  // reservations, unlocks the rest. `announced`: the slots that the client may have locked for
  // redo records that it has not logged; other slots in it do no harm. The cost follows `announced`
  // and the ring, not the size of the store. After an error, the same call again.
  base::Task<Status> resolve(WordChanger& changer, uint16_t owner, log::Ring& ring,
                             std::span<const SlotOffset> announced);

 private:
  // A tombstone that apply() has put in place and removed from the index. Its slot is still locked
  // by `owner`; once unlocked, its word shows `version`.
  struct Tombstone {
    uint16_t owner;
    uint64_t version;
  };
  struct Unlock {
    SlotOffset slot;
    LockWord from;
    uint64_t version;
    bool frees;
    bool bucket_changes;
    IndexKey key;  // in the redo record
  };
  // What one call of apply() has begun: locks to free, keys of ordered tables in change.
  struct Begun {
    std::vector<Unlock> unlocks;
    std::vector<IndexKey> keys;
  };

  void cancel_reservation(SlotOffset slot);
  bool inserts_of_others(const IndexKey& key, uint16_t owner, ReserveFor transaction) const;
  Status show_reserved(const IndexKey& key, IndexEntry slot);
  void put_in_place(uint16_t owner, const LoggedWrite& write, Begun& begun);
  bool change_leaf(const IndexKey& key, IndexEntry at, bool erase, bool reserved, Begun& begun);
  bool has_tombstone(SlotOffset slot, uint16_t owner, uint64_t version) const;
  void free_tombstone(SlotOffset slot);
  base::Task<Status> release_all(WordChanger& changer, uint16_t owner);
  base::Task<Status> free_locks(WordChanger& changer, uint16_t owner,
                                std::span<const SlotOffset> announced);

  RecordStore& records_;
  FailureLatch& latch_;
  std::unordered_map<uint64_t, Tombstone> tombstones_;  // by slot
};

}  // namespace pmstore::internal
