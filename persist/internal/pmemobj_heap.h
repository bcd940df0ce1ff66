// PmemobjHeap: takes chunks of an open libpmemobj pool for extents and gives them back, by the
// 8-byte headers of libpmemobj's heap. While a pool is in use libpmemobj has not opened it: its
// 1,024 lanes would take 14 MB of DRAM.
//
// Invariants: free groups have no free neighbour in their zone; a used group that begins behind the
// root object's run belongs to one extent, but between publish() and the extent's entry, and
// between the end of the entry and give_back(). mend() gives back what a crash has left so.
// Each change of the heap is one 8-byte store, durable on return; what it makes reachable is
// durable before. So libpmemobj finds a heap in order after every crash. The word at the end of a
// group
// ("footer") is not kept: libpmemobj writes it for every group when it opens a pool.
// Threads: one at a time. The memory is borrowed.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "persist/internal/pmemobj_format.h"
#include "persist/memory.h"
#include "persist/padding.h"
#include "persist/persisted.h"
#include "persist/pool_layout.h"

namespace pmstore::persist::internal {

// Objects up to 10 chunks of 256 KiB (MAX_RUN_SIZE in PMDK's alloc_class.c) are cut from runs of
// several of their size when libpmemobj allocates them. Larger ones have chunks of their own; an
// extent always has.
inline constexpr uint64_t kSmallestObject = 10 * kChunkBytes + 1;
// An object begins 16 bytes behind its chunk; the extent in it at the next multiple of 256.
inline constexpr uint64_t kAlignmentSlack = kXpLineBytes;
inline constexpr uint64_t kLeastExtent = 10 * kChunkBytes;
static_assert(kLeastExtent % kXpLineBytes == 0 &&
              (kLeastExtent + kAlignmentSlack) / kChunkBytes == kSmallestObject / kChunkBytes);

// Of the root object.
inline constexpr uint64_t kPmemobjRootBytes = kPoolLayoutBytes + kAlignmentSlack;

// From the largest object: an extent is a multiple of 256, aligned inside its object.
uint64_t largest_extent_in(uint64_t object_bytes);

class PmemobjHeap {
 public:
  PmemobjHeap(Memory& memory, const PmemobjFacts& facts) : memory_(memory), facts_(facts) {}

  // Where an object can lie: the first chunks of the smallest free group that has room for it.
  struct Room {
    ChunkGroup group;
    uint64_t chunks;  // of the object
    uint64_t object() const { return group.begin + kObjectHeaderBytes; }
    ByteRange bytes() const { return {group.begin, group.begin + chunks * kChunkBytes}; }
  };
  // For an extent of that size. It is free until publish().
  std::optional<Room> find(uint64_t extent_bytes) const;
  // Writes what lies in the room beside the extent: the object's header, and that of the group that
  // will be left over. All of that is in free chunks. Flushed, not durable.
  Status prepare(const Room& room, uint64_t kind);
  // The room is taken: durable on return. `content` proves that what is in it is durable.
  Status publish(Persisted content, const Room& room);
  // The object's chunks, the result, are free from here on, durably, as one group with free
  // neighbours. `gone` proves that no entry names them any more. CHECK: there is such an object.
  Result<ByteRange> give_back(Persisted gone, uint64_t object);
  // After a crash: makes the headers of groups and zones durable that may be in the CPU's caches
  // only, frees used groups without an extent, and joins free groups. `extents` are those of the
  // table, durably.
  Status mend(const std::vector<Extent>& extents);

  // The largest extent that find() has room for.
  uint64_t largest_extent() const;
  // For each free group, the largest extent that it has room for, if any.
  std::vector<uint64_t> free_extents() const;

 private:
  std::vector<ChunkGroup> groups() const { return chunk_groups(memory_.mapping(), facts_); }
  // One store of a group's header, durable on return.
  Status set_group(const ChunkGroup& group, ChunkType type, uint64_t end);
  Status set_up_zone(const ChunkGroup& group);
  Status join_free_groups();

  Memory& memory_;
  PmemobjFacts facts_;
};

}  // namespace pmstore::persist::internal
