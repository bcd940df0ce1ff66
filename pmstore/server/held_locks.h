// HeldLocks: for how long one session's client has kept lock words of records locked
// (LockDiscipline::kRnic).
//
// Pings of a client extend its lease, and must not extend its locks: a client that locks a record
// one-sided, and then only pings, would keep it from all others for ever. So the server looks at
// the words that the session has listed (lock_lists.h), some times per lease.
#pragma once

#include <cstdint>
#include <map>
#include <span>

#include "pmstore/shard/lock_table.h"
#include "pmstore/types.h"

namespace pmstore::internal {

class HeldLocks {
 public:
  // Notes which of the listed words `owner` keeps locked now. Gives at how many looks in a row one
  // of them was the same locked word; 0 when none is locked. Looks are counted, not time: a server
  // that stood still has not heard its clients either. Entries that name no slot below
  // `slot_space_bytes` are left out.
  unsigned look(std::span<const SlotOffset> listed, const LockTable& words, uint16_t owner,
                uint64_t slot_space_bytes);
  // As if nothing had been locked at the last look.
  void forget() { held_.clear(); }

 private:
  struct Held {
    uint64_t bits;
    unsigned looks;
  };
  std::map<SlotOffset, Held> held_;
};

}  // namespace pmstore::internal
