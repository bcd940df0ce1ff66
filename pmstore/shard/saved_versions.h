// SavedVersions: versions of slots on their way from a checkpoint to the lock table.
//
// A page of the lock table has the words of one slot of each of 512 slabs
// (pmstore/layout/lock_word.h). So the versions of as many slabs are collected as the checkpoint
// has them, in few bytes each, and then stored page by page: slab by slab, each word would lie in
// another page than the one before.
// Invariants: the slabs that are collected are of one size class, and not more than kMost.
// Threads: one; several objects may store to the same table, each the words of other slabs.
// The store is borrowed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "pmstore/shard/checkpoint_reader.h"
#include "pmstore/shard/record_store.h"

namespace pmstore::internal {

class SavedVersions {
 public:
  static constexpr size_t kMost = 512;

  explicit SavedVersions(RecordStore& records) : records_(records) {}

  // Whether `slab` can be added without store() before.
  bool has_room_for(const SlabArena::Slab& slab) const;
  // The next bytes of `section` have, of each slot of the slab, how much its version is above
  // `least`, in so many bytes each, at most 8 (CHECK). False: the section ends before.
  bool add(CheckpointReader::Section& section, const SlabArena::Slab& slab, uint64_t least,
           uint8_t version_bytes);
  // Stores the words of all slots that were added, and forgets them. False: a version is larger
  // than there can be; what was stored must be discarded.
  bool store();

 private:
  struct OfSlab {
    uint64_t first_slot;
    uint64_t least;
    uint64_t mask;  // of a word that begins with a version
    size_t begin;   // in packed_
    uint8_t bytes;  // of each version there
  };
  uint64_t version(const OfSlab& of, uint32_t slot) const;

  RecordStore& records_;
  std::vector<OfSlab> slabs_;
  uint8_t size_class_ = 0;  // of all of them
  std::vector<std::byte> packed_;
};

}  // namespace pmstore::internal
