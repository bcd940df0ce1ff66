// NicCache: the RNIC's on-chip memory, which caches entries of the host's memory: queue pair state,
// WQEs, address translations and protection entries, all in competition.
//
// A kind and a number name an entry. The entry that is evicted when the cache is full is drawn by a
// seeded generator: the real policies are not published, and a random one has no cliff where a
// cyclic use just exceeds the capacity. Threads: one. Allocates only in the constructor.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/random.h"
#include "model/rnic_parameters.h"

namespace pmstore::model {

enum class NicEntry : uint8_t { kQueuePair, kWqe, kTranslation, kProtection };
inline constexpr size_t kNicEntryKinds = 4;

class NicCache {
 public:
  NicCache(const RnicParameters& parameters, uint64_t seed);

  // Looks up an entry, and adds it if it is not in the cache. True: it was.
  bool touch(NicEntry kind, uint64_t number);
  // Adds an entry that was not looked up; counts neither as hit nor as miss.
  void put(NicEntry kind, uint64_t number);

  uint64_t hits(NicEntry kind) const { return hits_[static_cast<size_t>(kind)]; }
  uint64_t misses(NicEntry kind) const { return misses_[static_cast<size_t>(kind)]; }
  uint64_t used_bytes() const { return used_bytes_; }

 private:
  static constexpr uint64_t kKinds = kNicEntryKinds;
  static uint64_t key_of(NicEntry kind, uint64_t number) {
    return number * kKinds + static_cast<uint64_t>(kind) + 1;  // never 0
  }
  size_t home(uint64_t key) const { return base::mix64(key) & mask_; }
  size_t find(uint64_t key) const;  // its slot, or the empty one where it would go
  void insert(size_t slot, uint64_t key);
  void evict_one();
  void erase(size_t slot);

  std::array<uint32_t, kNicEntryKinds> bytes_;
  std::array<uint64_t, kNicEntryKinds> hits_{};
  std::array<uint64_t, kNicEntryKinds> misses_{};
  const uint64_t capacity_bytes_;
  uint64_t used_bytes_ = 0;
  size_t mask_ = 0;
  std::vector<uint64_t> keys_;  // open addressing, linear probing; 0: empty
  base::Random random_;
};

}  // namespace pmstore::model
