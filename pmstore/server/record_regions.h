// RecordRegions: the frames of records that clients may access through one device.
//
// A frame that the store takes while it serves is registered beside the answers, one in a turn of
// the executor; until then its records are reached by RPC. Registering takes an RNIC the time to
// pin the frame.
// Invariants: a region covers memory that a frame has; a frame's memory is given back to the pool
// only after its region is gone, and after every session that was told of the region has confirmed
// a list without it or has ended.
// Threads: the executor's. Lifetimes: device and arena outlive it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "fabric/device.h"
#include "pmstore/layout/frame_layout.h"
#include "pmstore/shard/slab_arena.h"

namespace pmstore::internal {

class RecordRegions {
 public:
  RecordRegions(fabric::Device& device, fabric::Access rights, const SlabArena& arena)
      : device_(device), rights_(rights), arena_(arena) {}

  // Registers the frames that the arena has. Errors of Device::register_memory().
  Status start();
  // Registers one frame that has no region yet; false: there is none. A frame that the device
  // refuses stays without a region.
  bool register_one();
  // The region of `frame` is gone. The next memory of the frame is asked for anew.
  void withdraw(uint32_t frame) {
    later_[frame].reset();
    refused_[frame] = false;
  }

  fabric::Access rights() const { return rights_; }
  // What was made with the pool.
  const fabric::RemoteRegion& first() const { return first_->remote(); }
  // By frame, as far as there are regions; without bytes: the frame has none, or is set aside.
  // `known`: gets a bit for each later frame that is listed.
  std::vector<fabric::RemoteRegion> list(uint64_t& known) const;

 private:
  fabric::Device& device_;
  const fabric::Access rights_;
  const SlabArena& arena_;
  std::unique_ptr<fabric::MemoryRegion> first_;
  std::array<std::unique_ptr<fabric::MemoryRegion>, kMostFrames> later_;
  std::array<bool, kMostFrames> refused_{};
};

}  // namespace pmstore::internal
