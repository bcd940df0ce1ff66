// Invariants: used_bytes_ <= capacity_bytes_ and is the sum over keys_; at most half of keys_ is in
// use; every key is reachable from home(key) without passing an empty slot.
#include "model/nic_cache.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace pmstore::model {

NicCache::NicCache(const RnicParameters& parameters, uint64_t seed)
    : bytes_{static_cast<uint32_t>(parameters.qp_bytes),
             static_cast<uint32_t>(parameters.wqe_bytes),
             static_cast<uint32_t>(parameters.translation_bytes),
             static_cast<uint32_t>(parameters.protection_bytes)},
      capacity_bytes_(static_cast<uint64_t>(parameters.cache_bytes)),
      random_(seed) {
  const uint32_t least = *std::min_element(bytes_.begin(), bytes_.end());
  const size_t slots = std::bit_ceil(std::max<uint64_t>(16, 2 * capacity_bytes_ / least));
  mask_ = slots - 1;
  keys_.resize(slots, 0);
}

size_t NicCache::find(uint64_t key) const {
  size_t slot = home(key);
  while (keys_[slot] != 0 && keys_[slot] != key) slot = (slot + 1) & mask_;
  return slot;
}

bool NicCache::touch(NicEntry kind, uint64_t number) {
  const uint64_t key = key_of(kind, number);
  const size_t slot = find(key);
  if (keys_[slot] == key) {
    ++hits_[static_cast<size_t>(kind)];
    return true;
  }
  ++misses_[static_cast<size_t>(kind)];
  insert(slot, key);
  return false;
}

void NicCache::put(NicEntry kind, uint64_t number) {
  const uint64_t key = key_of(kind, number);
  const size_t slot = find(key);
  if (keys_[slot] != key) insert(slot, key);
}

void NicCache::insert(size_t slot, uint64_t key) {
  const uint32_t bytes = bytes_[(key - 1) % kKinds];
  if (bytes > capacity_bytes_) return;  // no cache at all
  bool moved = false;
  while (used_bytes_ + bytes > capacity_bytes_) {
    evict_one();
    moved = true;
  }
  if (moved) slot = find(key);
  keys_[slot] = key;
  used_bytes_ += bytes;
  PMSTORE_CHECK(used_bytes_ <= capacity_bytes_, "what does not fit is evicted before");
}

void NicCache::evict_one() {
  // The next one in use after a random slot.
  size_t slot = random_.next() & mask_;
  while (keys_[slot] == 0) slot = (slot + 1) & mask_;
  erase(slot);
}

void NicCache::erase(size_t slot) {
  PMSTORE_CHECK(keys_[slot] != 0, "an entry is removed once");
  used_bytes_ -= bytes_[(keys_[slot] - 1) % kKinds];
  // Those behind it move up, so that no search meets a hole.
  size_t hole = slot;
  for (size_t at = (slot + 1) & mask_; keys_[at] != 0; at = (at + 1) & mask_) {
    const size_t distance_home = (at - home(keys_[at])) & mask_;
    const size_t distance_hole = (at - hole) & mask_;
    if (distance_home < distance_hole) continue;
    keys_[hole] = keys_[at];
    hole = at;
  }
  keys_[hole] = 0;
}

}  // namespace pmstore::model
