// The lock lists of a session: which slots each of its commits is about to lock
// (LockDiscipline::kRnic).
//
// A region in the server's DRAM, one per session, which only the session's client writes. It has
// one list for each commit that may be under way. A commit WRITEs its list before its compare-swaps
// on the same queue pair, so every word that it has locked is in the list. When the session has
// ended, the server visits only the listed lock words, not those of the whole store. An old or
// wrong entry does no harm: the server unlocks a word only if the word names this session as its
// owner.
//
// Invariant: a list is overwritten only while the session is usable; a commit that ends with locks
// held that are in no redo record makes the session unusable.
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
