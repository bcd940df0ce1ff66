#include "pmstore/client/location_cache.h"

#include <algorithm>
#include <bit>

namespace pmstore::internal {

LocationCache::LocationCache(size_t entries) {
  if (entries == 0) return;
  constexpr size_t kWays = std::tuple_size_v<decltype(Set::ways)>;
  sets_.resize(std::bit_ceil((entries + kWays - 1) / kWays));
}

void LocationCache::put(KeyHash hash, uint8_t size_class, SlotOffset slot) {
  if (sets_.empty()) return;
  auto& ways = sets_[index_of(hash)].ways;
  const BucketEntry where = BucketEntry::make(hash.tag(), size_class, slot);
  size_t at = 0;
  while (at + 1 < ways.size() && ways[at].hash != hash.value && ways[at].where.used()) ++at;
  std::move_backward(ways.begin(), ways.begin() + static_cast<ptrdiff_t>(at),
                     ways.begin() + static_cast<ptrdiff_t>(at) + 1);
  ways[0] = {hash.value, where};
}

void LocationCache::remove(KeyHash hash) {
  if (sets_.empty()) return;
  for (Way& way : sets_[index_of(hash)].ways) {
    if (way.hash == hash.value) way = {};
  }
}

}  // namespace pmstore::internal
