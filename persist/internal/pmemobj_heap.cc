#include "persist/internal/pmemobj_heap.h"

#include <libpmemobj.h>

#include <algorithm>

#include "base/check.h"

namespace pmstore::persist::internal {
namespace {

uint64_t chunks_in(uint64_t bytes) { return bytes / kChunkBytes; }

// With the header of the object.
uint64_t chunks_for(uint64_t extent_bytes) {
  const uint64_t object = std::max(extent_bytes + kAlignmentSlack, kSmallestObject);
  return chunks_in(round_up(object + kObjectHeaderBytes, kChunkBytes));
}

bool neighbours(const ChunkGroup& first, const ChunkGroup& second) {
  return first.zone == second.zone && first.end == second.begin;
}

bool is_free(const ChunkGroup& group) { return group.type == ChunkType::kFree; }

}  // namespace

uint64_t largest_extent_in(uint64_t object_bytes) {
  const uint64_t usable = std::min<uint64_t>(object_bytes, PMEMOBJ_MAX_ALLOC_SIZE);
  return usable < kSmallestObject ? 0 : round_down(usable - kAlignmentSlack, kXpLineBytes);
}

uint64_t PmemobjHeap::largest_extent() const {
  return largest_extent_in(largest_free_object(memory_.mapping(), facts_));
}

std::vector<uint64_t> PmemobjHeap::free_extents() const {
  std::vector<uint64_t> all;
  for (const ChunkGroup& group : groups()) {
    if (!is_free(group)) continue;
    const uint64_t bytes = largest_extent_in(group.end - group.begin - kObjectHeaderBytes);
    if (bytes > 0) all.push_back(bytes);
  }
  return all;
}

std::optional<PmemobjHeap::Room> PmemobjHeap::find(uint64_t extent_bytes) const {
  if (extent_bytes > largest_extent()) return std::nullopt;
  const uint64_t chunks = chunks_for(extent_bytes);
  std::optional<Room> best;
  for (const ChunkGroup& group : groups()) {
    const uint64_t size = group.end - group.begin;
    if (!is_free(group) || chunks_in(size) < chunks) continue;
    if (!best || size < best->group.end - best->group.begin) best = Room{group, chunks};
  }
  return best;
}

Status PmemobjHeap::prepare(const Room& room, uint64_t kind) {
  const ChunkGroup& group = room.group;
  PMSTORE_CHECK(is_free(group) && room.chunks <= chunks_in(group.end - group.begin),
                "an object begins in free chunks");
  if (!group.zone_is_set_up) {
    PMSTORE_TRY_STATUS(set_up_zone(group));
  }
  const uint64_t object_header[2] = {room.chunks * kChunkBytes, kind};
  static_assert(sizeof object_header == kObjectHeaderBytes);
  memory_.store(memory_.at(group.begin), object_header, sizeof object_header);
  memory_.flush(memory_.at(group.begin), sizeof object_header);
  const uint64_t left = chunks_in(group.end - group.begin) - room.chunks;
  if (left == 0) return {};
  auto* const rest = reinterpret_cast<uint64_t*>(memory_.at(group.header)) + room.chunks;
  memory_.store64(rest, chunk_header_of(ChunkType::kFree, left));
  memory_.flush(rest, sizeof *rest);
  return {};
}

Status PmemobjHeap::publish(Persisted /*content*/, const Room& room) {
  return set_group(room.group, ChunkType::kUsed, room.group.begin + room.chunks * kChunkBytes);
}

Result<ByteRange> PmemobjHeap::give_back(Persisted /*gone*/, uint64_t object) {
  for (const ChunkGroup& group : groups()) {
    if (group.begin + kObjectHeaderBytes != object) continue;
    PMSTORE_CHECK(group.type == ChunkType::kUsed, "what is given back was taken");
    PMSTORE_TRY_STATUS(set_group(group, ChunkType::kFree, group.end));
    PMSTORE_TRY_STATUS(join_free_groups());
    return ByteRange{group.begin, group.end};
  }
  PMSTORE_CHECK(false, "the object of an extent begins a group of chunks");
}

Status PmemobjHeap::mend(const std::vector<Extent>& extents) {
  for (const ChunkGroup& group : groups()) {
    PMSTORE_CHECK(group.type != ChunkType::kBroken, "the heap was checked");
    if (!group.zone_is_set_up) continue;
    memory_.flush(memory_.at(group.header), sizeof(uint64_t));
    memory_.flush(memory_.at(group.zone), sizeof(uint64_t));
  }
  PMSTORE_TRY_STATUS(memory_.drain());
  for (const ChunkGroup& group : groups()) {
    if (group.type != ChunkType::kUsed) continue;
    const auto inside = [&](uint64_t offset) {
      return offset >= group.begin && offset < group.end;
    };
    const bool owned = inside(facts_.root_offset) ||
                       std::any_of(extents.begin(), extents.end(),
                                   [&](const Extent& extent) { return inside(extent.offset); });
    if (!owned) {
      PMSTORE_TRY_STATUS(set_group(group, ChunkType::kFree, group.end));
    }
  }
  return join_free_groups();
}

Status PmemobjHeap::join_free_groups() {
  std::optional<ChunkGroup> before;
  for (const ChunkGroup& group : groups()) {
    if (before && is_free(*before) && is_free(group) && neighbours(*before, group)) {
      PMSTORE_TRY_STATUS(set_group(*before, ChunkType::kFree, group.end));
      before->end = group.end;
    } else {
      before = group;
    }
  }
  return {};
}

Status PmemobjHeap::set_group(const ChunkGroup& group, ChunkType type, uint64_t end) {
  PMSTORE_CHECK(end > group.begin && (end - group.begin) % kChunkBytes == 0,
                "a group is of whole chunks");
  auto* const header = reinterpret_cast<uint64_t*>(memory_.at(group.header));
  memory_.store64(header, chunk_header_of(type, chunks_in(end - group.begin)));
  memory_.flush(header, sizeof *header);
  PMSTORE_TRY_STATUS(memory_.drain());
  return {};
}

Status PmemobjHeap::set_up_zone(const ChunkGroup& group) {
  PMSTORE_TRY_STATUS(set_group(group, ChunkType::kFree, group.end));
  auto* const zone = reinterpret_cast<uint64_t*>(memory_.at(group.zone));
  memory_.store64(zone, zone_header_of(chunks_in(group.end - group.begin)));
  memory_.flush(zone, sizeof *zone);
  PMSTORE_TRY_STATUS(memory_.drain());
  return {};
}

}  // namespace pmstore::persist::internal
