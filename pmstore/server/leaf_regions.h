// LeafRegions: the chunks of the indexes of ordered tables that clients may READ through one
// device.
//
// A chunk is registered when an answer first names a leaf of it, after that answer: until then its
// leaves have no routes. Registering takes an RNIC the time to pin the chunk. A chunk that cannot
// be registered stays without routes, and its leaves are read by RPC. Invariant: registered memory
// belongs to an index that is shared (KeyIndex::share_chunk_of()), so it stays mapped. Threads: the
// executor's. Lifetimes: the device and the index outlive it; it outlives its tasks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/executor.h"
#include "base/task.h"
#include "fabric/device.h"
#include "pmstore/layout/protocol.h"
#include "pmstore/shard/key_index.h"

namespace pmstore::internal {

class LeafRegions {
 public:
  LeafRegions(base::Executor& executor, fabric::Device& device, KeyIndex& index)
      : executor_(executor), device_(device), index_(index) {}

  // `reply`, in the first bytes of `room`, is a RangeScanReply of `table`. Adds the routes of its
  // first leaves behind it, as many as are known and have room; gives its new size.
  size_t add_routes(TableId table, std::span<std::byte> room, size_t reply_bytes);
  // Some leaf had no route yet, and no task registers its chunk.
  bool needs_work() const { return !wanted_.empty() && !working_; }
  // Registers what was wanted, one chunk in a turn of the executor.
  base::Task<void> work();

  size_t registered() const { return registered_; }
  // Chunks that the device has refused.
  size_t refused() const { return refused_; }

 private:
  // Of an answer: with more, the client learns the others from the leaves themselves.
  static constexpr size_t kMostRoutes = 32;

  const fabric::RemoteRegion* region_of(TableId table, NodeId leaf);

  base::Executor& executor_;
  fabric::Device& device_;
  KeyIndex& index_;
  // By the address of the first byte; no region: refused, or wanted.
  std::unordered_map<const std::byte*, std::unique_ptr<fabric::MemoryRegion>> chunks_;
  std::vector<std::span<std::byte>> wanted_;
  size_t registered_ = 0;
  size_t refused_ = 0;
  bool working_ = false;
};

}  // namespace pmstore::internal
