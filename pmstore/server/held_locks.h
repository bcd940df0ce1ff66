// HeldLocks: for how long one session's client has kept lock words of records locked
// (LockDiscipline::kRnic).
//
// Pings and requests of a client extend its lease, and must not extend its locks: a client that
// locks a record one-sided, and then goes on asking, would keep it from all others for ever. So the
// server looks at the words that the session has listed (lock_lists.h), some times per lease. Looks
// are counted, not time: a server that stood still has not heard its clients either.
//
// A client that holds locks may wait for the server: for kApply, at whose end the server unlocks,
// or for room in its ring, which kApply of another commit of the session gives. Each takes
// microseconds, unless the server's RNIC does not answer. So a look is excused when one request of
// the session has been under way since the look before. Short requests excuse none, however many
// there are. Excuses are counted too, because a client gives its session up when a request is not
// answered in time. Invariant: a request that is under way began either before the last look or
// after it, and is counted there.
#pragma once

#include <cstdint>
#include <map>
#include <span>

#include "pmstore/shard/lock_table.h"
#include "pmstore/types.h"

namespace pmstore::internal {

class HeldLocks {
 public:
  // Of the words that were the same locked ones at looks in a row: the most looks of a word that
  // were not excused, and the most that were. Both 0 when none is locked.
  struct Looks {
    unsigned counted = 0;
    unsigned excused = 0;
  };
  // Notes which of the listed words `owner`, which is not 0 (CHECK), keeps locked now. Entries that
  // name no slot below `slot_space_bytes` are left out.
  Looks look(std::span<const SlotOffset> listed, const LockTable& words, uint16_t owner,
             uint64_t slot_space_bytes);

  // The server suspends a request of the session; gives what request_ends() takes, once.
  uint64_t request_begins() {
    ++begun_since_;
    return look_;
  }
  void request_ends(uint64_t begun);

 private:
  struct Held {
    uint64_t bits;
    Looks looks;
  };
  std::map<SlotOffset, Held> held_;
  uint64_t look_ = 0;          // the number of the last one
  unsigned begun_before_ = 0;  // requests under way that began before the last look
  unsigned begun_since_ = 0;   // the others
};

}  // namespace pmstore::internal
