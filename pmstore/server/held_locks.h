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
  // Notes which of the listed words `owner` keeps locked now. Gives since when the oldest of them
  // was the same locked word at every look; `now_ns` when there is none. Entries that name no slot
  // below `slot_space_bytes` are left out.
  uint64_t look(std::span<const SlotOffset> listed, const LockTable& words, uint16_t owner,
                uint64_t slot_space_bytes, uint64_t now_ns);

 private:
  struct Held {
    uint64_t bits;
    uint64_t since_ns;
  };
  std::map<SlotOffset, Held> held_;
};

}  // namespace pmstore::internal
