// RnicWords: a WordChanger that changes the server's lock words by RNIC atomics over a loopback
// queue pair, because a CPU atomic is not atomic against an RNIC's (invariant 6).
//
// When the loopback breaks it is connected again, a bounded number of times per change. At most
// kInFlight changes are under way; others wait. Threads: the executor's.
#pragma once

#include <memory>
#include <vector>

#include "base/executor.h"
#include "fabric/device.h"
#include "pmstore/shard/store.h"

namespace pmstore::internal {

class RnicWords final : public WordChanger {
 public:
  // `words` is the lock table as registered on `device`; both are borrowed. Errors of
  // Device::loopback(); Unsupported when the fabric has no atomics.
  static base::Task<Result<std::unique_ptr<RnicWords>>> create(fabric::Device& device,
                                                               const fabric::MemoryRegion& words);
  // When the loopback breaks under a swap, the swap is tried again. If the word is `desired` then,
  // the first try is taken to have succeeded. So only one caller at a time may change a word from
  // one value to the same other one, unless it does not matter which of them did.
  base::Task<Result<bool>> compare_swap(SlotOffset slot, LockWord expected,
                                        LockWord desired) override;
  base::Task<void> pause() override;

 private:
  static constexpr size_t kInFlight = 64;
  RnicWords(fabric::Device& device, const fabric::MemoryRegion& words);
  class Connecting;
  class OldValue;
  base::Task<Status> connect();

  fabric::Device& device_;
  base::WaitList room_;
  base::WaitList connected_;
  bool connecting_ = false;
  const fabric::MemoryRegion& words_;
  // Where the RNIC writes the values that it found.
  alignas(64) uint64_t old_values_[kInFlight] = {};
  std::vector<uint32_t> free_;
  std::unique_ptr<fabric::MemoryRegion> old_region_;
  // Shared with the changes that are under way. Destroyed before old_region_, to which it writes.
  std::shared_ptr<fabric::Connection> loopback_;
};

}  // namespace pmstore::internal
