// CommitLocks: the lock words of one commit under lock discipline rnic.
//
// Invariant: after lock_and_validate() the locks that this commit holds by compare-and-swap are
// those whose word in the buffer shows the expected unlocked value; reserved slots are locked by
// the server and are not counted here. The commit keeps the buffer while it holds locks, because
// the buffer's number names the list in which the server finds them
// (pmstore/layout/lock_list_layout.h). Threads: the executor's. Borrows items and participant.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/result.h"
#include "base/task.h"
#include "pmstore/client/client_session.h"
#include "pmstore/client/item_set.h"
#include "pmstore/client/participant.h"

namespace pmstore::internal {

class CommitLocks {
 public:
  CommitLocks(const ItemSet& items, Participant& participant)
      : items_(items),
        session_(*participant.session),
        buffer_(participant.locks),
        attempted_(participant.locks_attempted) {}

  // Locks every record that is written, and then checks every read. Success: all locks are held and
  // at one moment during that nothing that was read had changed. Conflict: another transaction
  // holds a lock or has changed something; call unlock(). Any other error: which locks are held is
  // not known, and the session is dropped so that the server unlocks them.
  base::Task<Status> lock_and_validate();
  // Unlocks what lock_and_validate() has locked, unless the session is over. Drops the session when
  // it fails: the server then unlocks. CHECK: attempted().
  base::Task<void> unlock();
  // Takes out of `reads` what this commit has locked, which is not the server's to validate. False:
  // a record is locked at another version than it was read at. Requires that all locks are held.
  bool take_out_locked(std::vector<ReadCheck>& reads) const;
  // Compare-and-swaps may have been posted.
  bool attempted() const { return attempted_; }

  // CHECK, for all three: lock_and_validate() has taken the buffer and nothing has given it back.
  OpBuffer& buffer() {
    PMSTORE_CHECK(static_cast<bool>(buffer_), "a commit that holds locks has a buffer");
    return *buffer_;
  }
  BufferLease take_buffer() {
    PMSTORE_CHECK(static_cast<bool>(buffer_), "a commit that holds locks has a buffer");
    return std::move(buffer_);
  }
  void give_buffer_back() { buffer_ = {}; }

 private:
  struct Lock {
    SlotOffset slot;
    uint64_t version;
  };

  // The word that a write must lock by itself; reserved slots are locked already.
  static std::optional<Lock> lock_of(const TxItem& item) {
    if (!item.writes() || (item.reserved && !item.moved)) return std::nullopt;
    if (item.moved) return Lock{item.old_slot, item.old_version};
    return Lock{item.slot, item.version};
  }
  // What was only read, and is validated by its word.
  static bool is_read(const TxItem& item) {
    return !item.writes() && item.seen == TxItem::Seen::kFound;
  }
  // A key that this transaction has reserved a slot for is absent by that reservation.
  static bool is_absence(const TxItem& item) {
    return item.seen == TxItem::Seen::kAbsent && !item.reserved && !item.absent_by_call;
  }

  void announce_locks();
  Status check_words() const;
  // Posts the buffer's batch if it is full.
  base::Task<Status> make_room_in_batch();
  // It is not known which locks are held: only the server can find out.
  Status give_up(Status why) {
    session_.drop();
    return why;
  }

  const ItemSet& items_;
  ClientSession& session_;
  BufferLease& buffer_;  // the participant's
  bool& attempted_;
};

}  // namespace pmstore::internal
