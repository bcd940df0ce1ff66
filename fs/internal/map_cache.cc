#include "fs/internal/map_cache.h"

#include <algorithm>

#include "base/check.h"

namespace pmstore::fs::internal {

std::vector<MapExtent>::const_iterator CachedMap::extent_at(uint64_t offset) const {
  auto at = std::upper_bound(
      extents.begin(), extents.end(), offset,
      [](uint64_t where, const MapExtent& extent) { return where < extent.file_offset; });
  if (at == extents.begin()) return extents.end();
  --at;
  return offset - at->file_offset < at->place.bytes ? at : extents.end();
}

uint64_t CachedMap::allocated_from(uint64_t offset, uint64_t most) const {
  uint64_t bytes = 0;
  auto at = extent_at(offset);
  while (at != extents.end() && bytes < most) {
    const uint64_t in_extent = offset + bytes - at->file_offset;
    bytes += std::min(most - bytes, at->place.bytes - in_extent);
    const uint64_t end = at->file_offset + at->place.bytes;
    ++at;
    if (at != extents.end() && at->file_offset != end) break;
  }
  return bytes;
}

CachedMapRef MapCache::find(Ino ino) {
  const auto found = maps_.find(raw(ino));
  if (found == maps_.end()) return nullptr;
  used_.splice(used_.end(), used_, found->second.used);
  return found->second.map;
}

bool MapCache::put(Ino ino, CachedMapRef map, uint64_t news_before) {
  if (news_before < dropped_through_) return false;
  forget(ino);
  maps_[raw(ino)] = {std::move(map), used_.insert(used_.end(), ino)};
  while (maps_.size() > most_) forget(used_.front());
  PMSTORE_CHECK(maps_.size() == used_.size(), "each map has one place in the order");
  return true;
}

void MapCache::forget(Ino ino) {
  const auto found = maps_.find(raw(ino));
  if (found == maps_.end()) return;
  used_.erase(found->second.used);
  maps_.erase(found);
}

void MapCache::drop(uint64_t through, bool all, const std::vector<Ino>& changed) {
  dropped_through_ = std::max(dropped_through_, through);
  if (all) {
    maps_.clear();
    used_.clear();
  } else {
    for (const Ino ino : changed) forget(ino);
  }
}

void MapCache::clear() {
  drop(0, true, {});
  dropped_through_ = 0;
}

void MapCache::note(const Attributes& attributes) {
  const auto found = maps_.find(raw(attributes.ino));
  if (found == maps_.end()) return;
  Attributes& known = found->second.map->attributes;
  if (attributes.version > known.version) known = attributes;
}

}  // namespace pmstore::fs::internal
