// RegionTable: the memory of a store that clients may access through one device and that grows: its
// pieces by kind and number (RegionKind in pmstore/layout/protocol.h), and the region of each.
//
// A piece is registered when a client first asks for it: that takes an RNIC the time to pin it, so
// it is done between other requests, one piece in a turn of the executor. A piece that the device
// refuses has no region, and clients reach what is in it by RPC. Invariant: registered memory stays
// mapped as long as this table. Threads: the executor's. Lifetimes: the device and what the sources
// borrow outlive it; it outlives its tasks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>

#include "base/executor.h"
#include "base/result.h"
#include "base/task.h"
#include "fabric/device.h"
#include "pmstore/layout/protocol.h"

namespace pmstore::internal {

class RegionTable {
 public:
  // The pieces of a kind that there are at this moment.
  struct Source {
    fabric::Access access;
    std::function<uint32_t()> end;  // all numbers are below
    // Empty: there is no such piece.
    std::function<std::span<std::byte>(uint32_t number)> memory;
  };

  RegionTable(base::Executor& executor, fabric::Device& device)
      : executor_(executor), device_(device) {}

  // Each kind once (CHECK).
  void add(RegionKind kind, Source source);
  // The region of a piece that there is (CHECK); registers it. Errors of register_memory(), which
  // is asked once.
  Result<fabric::RemoteRegion> provide(RegionKind kind, uint32_t number);
  // Registers what one answer takes of the pieces from `first` on.
  base::Task<void> provide_from(RegionKind kind, uint32_t first);
  // Fills `room` with the RegionsReply of the pieces from `first` on that have regions, as many as
  // one answer takes; gives its size. TooLarge: no room for one.
  Result<size_t> answer(RegionKind kind, uint32_t first, std::span<std::byte> room) const;

  static bool is_kind(RegionKind kind) {
    return kind >= RegionKind::kBuckets && static_cast<uint8_t>(kind) <= kRegionKinds;
  }
  size_t registered() const { return registered_; }
  size_t refused() const { return refused_; }

 private:
  struct Kind {
    Source source;
    // nullptr: the device has refused it.
    std::map<uint32_t, std::unique_ptr<fabric::MemoryRegion>> regions;
  };
  Kind& of(RegionKind kind) { return kinds_[static_cast<size_t>(kind) - 1]; }
  const Kind& of(RegionKind kind) const { return kinds_[static_cast<size_t>(kind) - 1]; }

  base::Executor& executor_;
  fabric::Device& device_;
  std::array<Kind, kRegionKinds> kinds_;
  size_t registered_ = 0;
  size_t refused_ = 0;
};

}  // namespace pmstore::internal
