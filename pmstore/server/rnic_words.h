// RnicWords: changes the server's own lock words by RNIC atomics, through a loopback queue pair,
// because a CPU atomic is not atomic against an RNIC's (invariant 6). A loopback that breaks is
// made again, a bounded number of times per change. Threads: the executor's.
#pragma once

#include <memory>
#include <vector>

#include "base/executor.h"
#include "fabric/device.h"
#include "pmstore/shard/store.h"

namespace pmstore::internal {

class RnicWords final : public WordChanger {
 public:
  // `words`: the lock table as registered on `device`. Both borrowed. Errors of Device::loopback().
  // compare_swap() asks the RNIC again when the loopback breaks under it; finding `desired` then,
  // it says that the first time has taken effect: so a word must be changed from one value to
  // another by one caller at a time, or it must not matter which of them did it.
  static base::Task<Result<std::unique_ptr<RnicWords>>> create(fabric::Device& device,
                                                               const fabric::MemoryRegion& words);
  base::Task<Result<bool>> compare_swap(SlotOffset slot, LockWord expected,
                                        LockWord desired) override;
  base::Task<void> pause() override;

 private:
  static constexpr size_t kInFlight = 64;
  RnicWords(fabric::Device& device, const fabric::MemoryRegion& words);
  class Connecting;
  class Place;
  base::Task<Status> connect();

  fabric::Device& device_;
  base::WaitList room_;
  base::WaitList connected_;
  bool connecting_ = false;
  const fabric::MemoryRegion& words_;
  alignas(64) uint64_t old_values_[kInFlight] = {};
  std::vector<uint32_t> free_;
  std::unique_ptr<fabric::MemoryRegion> old_region_;
  // Shared with the changes that are under way on it. Destroyed before the region it reads into.
  std::shared_ptr<fabric::Connection> loopback_;
};

}  // namespace pmstore::internal
