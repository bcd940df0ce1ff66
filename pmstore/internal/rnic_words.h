// RnicWords: changes the server's own lock words by RNIC atomics, through a loopback queue pair,
// because a CPU atomic is not atomic against an RNIC's (invariant 6). Threads: the executor's.
#pragma once

#include <memory>
#include <vector>

#include "base/executor.h"
#include "fabric/device.h"
#include "pmstore/internal/store.h"

namespace pmstore::internal {

class RnicWords final : public WordChanger {
 public:
  // `words`: the lock table as registered on `device`. Both borrowed. Errors of Device::loopback().
  static base::Task<Result<std::unique_ptr<RnicWords>>> create(fabric::Device& device,
                                                               const fabric::MemoryRegion& words);
  base::Task<Result<bool>> compare_swap(SlotOffset slot, LockWord expected,
                                        LockWord desired) override;

 private:
  static constexpr size_t kInFlight = 64;
  RnicWords(fabric::Device& device, const fabric::MemoryRegion& words);
  base::WaitList room_;
  const fabric::MemoryRegion& words_;
  alignas(64) uint64_t old_values_[kInFlight] = {};
  std::vector<uint32_t> free_;
  std::unique_ptr<fabric::MemoryRegion> old_region_;
  std::unique_ptr<fabric::Connection> loopback_;  // destroyed before the region it reads into
};

}  // namespace pmstore::internal
