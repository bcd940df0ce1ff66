// LockLists: which records each commit of a client is about to lock (LockDiscipline::kRnic).
//
// A region in the server's DRAM, one for each session, that only its client writes: one list for
// each commit that may be under way. A commit writes its list in front of its compare-swaps on the
// same queue pair, so whatever it has locked is in the list; when the session has ended, the server
// looks at these lock words only, not at all of the store's. An entry that is old or wrong does no
// harm: the server unlocks what the lock word says is this client's.
//
// Invariant: a list is overwritten only while the session is usable, and whoever leaves locks
// behind that are in no redo record has given the session up.
#pragma once

#include <cstdint>

#include "pmstore/types.h"

namespace pmstore {

inline constexpr uint64_t kLockLists = 128;
inline constexpr uint64_t kLocksPerList = 1024;
inline constexpr uint64_t kLockListBytes = kLocksPerList * sizeof(uint64_t);
inline constexpr uint64_t kLockListsBytes = kLockLists * kLockListBytes;

// An entry; 0 ends a list that is not full.
constexpr uint64_t lock_list_entry(SlotOffset slot) { return raw(slot) | 1; }
constexpr SlotOffset slot_of_entry(uint64_t entry) { return SlotOffset{entry & ~uint64_t{1}}; }

}  // namespace pmstore
