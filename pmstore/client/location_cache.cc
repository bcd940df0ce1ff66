#include "pmstore/client/location_cache.h"

#include <algorithm>
#include <bit>

namespace pmstore::internal {

LocationCache::LocationCache(size_t entries) {
  if (entries == 0) return;
  constexpr size_t kWays = std::tuple_size_v<decltype(Set::ways)>;
  sets_.resize(std::bit_ceil((entries + kWays - 1) / kWays));
}

std::optional<uint16_t> LocationCache::number_of(ShardId shard) {
  const auto found = std::find(shards_.begin(), shards_.end(), shard);
  if (found != shards_.end()) return static_cast<uint16_t>(found - shards_.begin());
  if (shards_.size() == kMostShards) return std::nullopt;
  shards_.push_back(shard);
  return static_cast<uint16_t>(shards_.size() - 1);
}

void LocationCache::put(KeyHash hash, ShardId shard, uint8_t size_class, SlotOffset slot) {
  if (sets_.empty()) return;
  const auto number = number_of(shard);
  if (!number) return remove(hash);
  auto& ways = sets_[index_of(hash)].ways;
  const BucketEntry where = BucketEntry::make(*number, size_class, slot);
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
