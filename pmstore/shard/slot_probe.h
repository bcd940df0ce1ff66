// SlotProbe: which slots of a slab hold a live record that the medium can still read.
//
// A bad page of a file ends a process that touches it through its mapping. So the slots of a pool
// in a file are looked at by reads of the file, some KiB at a time: of a slot without a record
// nothing is touched here, and neither is any page of it made resident. A pool that is a device, or
// memory of the process, has no such reads, and every slot is as good as another there.
// Threads: one, that of the arena. What is borrowed outlives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "persist/file_reads.h"
#include "pmstore/shard/slab_arena.h"

namespace pmstore::internal {

class SlotProbe {
 public:
  // So much is read at a time.
  static constexpr size_t kWindowBytes = 16 << 10;

  SlotProbe(const persist::Pool& pool, const SlabArena& arena);

  // Slots may have changed since the last call: what it has read is of no use any more.
  void forget() { window_bytes_ = 0; }
  // False: the slot has no live record, or the medium has an error in it. Takes calls for the slots
  // of a slab in ascending order best.
  bool may_be_live(const SlabArena::Slab& slab, SlotOffset slot);

 private:
  bool read_window(uint64_t at, size_t bytes);
  bool is_readable(uint64_t from, uint64_t end);
  std::span<const std::byte> header_at(uint64_t at, uint64_t end_of_slab);

  const persist::FileReads* file_;  // nullptr: it is mapped only
  const SlabArena& arena_;
  std::vector<std::byte> window_;
  uint64_t window_at_ = 0;  // in the pool
  size_t window_bytes_ = 0;
};

}  // namespace pmstore::internal
