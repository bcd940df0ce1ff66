// Invariants: used_bytes_ <= capacity_bytes_ and is the sum over keys_; at most half of keys_ is in
// use; every key is reachable from home(key) without passing an empty place.
#include "model/nic_cache.h"

#include <algorithm>
#include <bit>

namespace pmstore::model {

NicCache::NicCache(const RnicParameters& parameters, uint64_t seed)
    : bytes_{static_cast<uint32_t>(parameters.qp_bytes),
             static_cast<uint32_t>(parameters.wqe_bytes),
             static_cast<uint32_t>(parameters.translation_bytes),
             static_cast<uint32_t>(parameters.protection_bytes)},
      capacity_bytes_(static_cast<uint64_t>(parameters.cache_bytes)),
      random_(seed) {
  const uint32_t least = *std::min_element(bytes_.begin(), bytes_.end());
  const size_t places = std::bit_ceil(std::max<uint64_t>(16, 2 * capacity_bytes_ / least));
  mask_ = places - 1;
  keys_.resize(places, 0);
}

size_t NicCache::find(uint64_t key) const {
  size_t place = home(key);
  while (keys_[place] != 0 && keys_[place] != key) place = (place + 1) & mask_;
  return place;
}

bool NicCache::touch(NicEntry kind, uint64_t number) {
  const uint64_t key = key_of(kind, number);
  const size_t place = find(key);
  if (keys_[place] == key) {
    ++hits_[static_cast<size_t>(kind)];
    return true;
  }
  ++misses_[static_cast<size_t>(kind)];
  insert(place, key);
  return false;
}

void NicCache::put(NicEntry kind, uint64_t number) {
  const uint64_t key = key_of(kind, number);
  const size_t place = find(key);
  if (keys_[place] != key) insert(place, key);
}

void NicCache::insert(size_t place, uint64_t key) {
  const uint32_t bytes = bytes_[(key - 1) % kKinds];
  if (bytes > capacity_bytes_) return;  // no cache at all
  bool moved = false;
  while (used_bytes_ + bytes > capacity_bytes_) {
    evict_one();
    moved = true;
  }
  if (moved) place = find(key);
  keys_[place] = key;
  used_bytes_ += bytes;
}

void NicCache::evict_one() {
  // The next one in use after a random place.
  size_t place = random_.next() & mask_;
  while (keys_[place] == 0) place = (place + 1) & mask_;
  erase(place);
}

void NicCache::erase(size_t place) {
  used_bytes_ -= bytes_[(keys_[place] - 1) % kKinds];
  // Those behind it move up, so that no search meets a hole.
  size_t hole = place;
  for (size_t at = (place + 1) & mask_; keys_[at] != 0; at = (at + 1) & mask_) {
    const size_t distance_home = (at - home(keys_[at])) & mask_;
    const size_t distance_hole = (at - hole) & mask_;
    if (distance_home < distance_hole) continue;
    keys_[hole] = keys_[at];
    hole = at;
  }
  keys_[hole] = 0;
}

}  // namespace pmstore::model
