// Of SlabArena: frames without records, from the first look at them until their extents are freed.
#include <algorithm>
#include <bit>

#include "base/check.h"
#include "pmstore/shard/slab_arena.h"

namespace pmstore::internal {

static_assert(kMostFrames <= 64, "a word has a bit for each frame");

std::pair<uint32_t, uint32_t> SlabArena::chunks_in(uint32_t frame) const {
  const auto first = static_cast<uint32_t>(frame * frames_.frame_bytes() / kChunkBytes);
  return {first, first + static_cast<uint32_t>(frames_.memory(frame).size() / kChunkBytes)};
}

// It is free, or of a slab that has no used slot.
bool SlabArena::is_unused(uint32_t chunk) const {
  const Chunk& state = chunks_[chunk];
  if (state.kind == Chunk::Kind::kNone) return false;
  if (state.kind == Chunk::Kind::kFree) return true;
  return chunks_[state.kind == Chunk::Kind::kInside ? state.first : chunk].used == 0;
}

bool SlabArena::has_run_beside(uint32_t frame) const {
  uint32_t length = 0;
  for (uint32_t chunk = 0; chunk < chunks_.size(); ++chunk) {
    const uint32_t of = frames_.frame_of_chunk(chunk);
    if (frames_.begins_part(chunk)) length = 0;
    length = of != frame && !is_aside(of) && is_unused(chunk) ? length + 1 : 0;
    if (length == largest_run_) return true;
  }
  return false;
}

// It has no record, and would go if there were room elsewhere.
bool SlabArena::is_idle(uint32_t frame) const {
  return frames_.comes_back(frame) && used_in_frame_[frame] == 0 &&
         ((kept_frames_ | aside_) >> frame & 1) == 0;
}

// Unused room elsewhere than in a frame that is_idle().
uint64_t SlabArena::bytes_beside(uint32_t frame) const {
  return unused_chunks_ * kChunkBytes - frames_.memory(frame).size();
}

std::optional<uint32_t> SlabArena::empty_frame(uint64_t but_not) const {
  if (!frames_.extents_come_back()) return std::nullopt;
  // From the end of slot space, so that what is used gathers at its begin.
  for (uint32_t frame = frames_.most(); frame > 0; --frame) {
    if (!is_idle(frame - 1) || (but_not >> (frame - 1) & 1) != 0) continue;
    if (bytes_beside(frame - 1) < frames_.frame_bytes() / 2) continue;
    if (has_run_beside(frame - 1)) return frame - 1;
  }
  return std::nullopt;
}

// The slab at `chunk` has just become unused. Was it that for which an empty frame had to stay?
// Without a look at all chunks.
bool SlabArena::lets_one_go(uint32_t chunk) const {
  const uint64_t half = frames_.frame_bytes() / 2;
  const uint64_t freed = chunks_[chunk].run * kChunkBytes;
  for (uint32_t frame = 0; frame < frames_.most(); ++frame) {
    if (!is_idle(frame) || frame == frames_.frame_of_chunk(chunk)) continue;
    const uint64_t beside = bytes_beside(frame);
    if (beside >= half && (beside < half + freed || is_in_large_run(chunk))) return true;
  }
  return false;
}

// It is in a run of unused chunks that is as large as has_run_beside() wants.
bool SlabArena::is_in_large_run(uint32_t chunk) const {
  uint32_t first = chunk;
  while (first > 0 && chunk - first < largest_run_ && !frames_.begins_part(first) &&
         is_unused(first - 1)) {
    --first;
  }
  uint32_t end = chunk + 1;
  while (end < chunks_.size() && end - first < largest_run_ && !frames_.begins_part(end) &&
         is_unused(end)) {
    ++end;
  }
  return end - first >= largest_run_;
}

void SlabArena::set_aside(uint32_t frame) {
  PMSTORE_CHECK(!is_aside(frame) && frames_.comes_back(frame) && used_in_frame_[frame] == 0,
                "an extent with records is not freed");
  const auto [first, end] = chunks_in(frame);
  if (emptying_slab_ && *emptying_slab_ >= first && *emptying_slab_ < end) emptying_slab_.reset();
  emptying_frame_ &= ~(uint64_t{1} << frame);
  PMSTORE_CHECK(unused_chunks_ >= end - first, "all chunks of an empty frame are unused");
  unused_chunks_ -= end - first;
  aside_ |= uint64_t{1} << frame;
  seen_versions_[frame] = {};
}

void SlabArena::take_in_again(uint32_t frame) {
  PMSTORE_CHECK(is_aside(frame) && used_in_frame_[frame] == 0,
                "no slot of a frame that is set aside is used");
  const auto [first, end] = chunks_in(frame);
  unused_chunks_ += end - first;
  aside_ &= ~(uint64_t{1} << frame);
  ++changes_;
}

uint64_t SlabArena::highest_version_in(uint32_t chunk) const {
  PMSTORE_CHECK(version_of_ != nullptr, "without versions a base version could fall");
  const Chunk& state = chunks_[chunk];
  uint64_t highest = state.base_version;
  if (state.kind != Chunk::Kind::kSlab) return highest;
  const Slab slab{chunk, state.size_class, state.base_version};
  for (uint32_t i = 0; i < slots_per_slab(state.size_class); ++i) {
    highest = std::max(highest, version_of_(slot_of(slab, i)));
  }
  return highest;
}

bool SlabArena::look_at_versions(uint32_t frame, uint32_t chunks) {
  PMSTORE_CHECK(is_aside(frame), "versions of a frame in use may still rise");
  SeenVersions& seen = seen_versions_[frame];
  const auto [first, end] = chunks_in(frame);
  for (; chunks > 0 && first + seen.chunks < end; --chunks) {
    seen.highest = std::max(seen.highest, highest_version_in(first + seen.chunks));
    ++seen.chunks;
  }
  return first + seen.chunks == end;
}

uint64_t SlabArena::highest_version(uint32_t frame) {
  SeenVersions seen = is_aside(frame) ? seen_versions_[frame] : SeenVersions{};
  const auto [first, end] = chunks_in(frame);
  for (uint32_t chunk = first + seen.chunks; chunk < end; ++chunk) {
    seen.highest = std::max(seen.highest, highest_version_in(chunk));
  }
  return seen.highest;
}

Status SlabArena::give_back(uint32_t frame, persist::Persisted versions) {
  if (!is_aside(frame)) set_aside(frame);
  PMSTORE_CHECK(used_in_frame_[frame] == 0, "an extent with records is not freed");
  const auto [first, end] = chunks_in(frame);
  PMSTORE_TRY_STATUS(frames_.give_back(frame, versions));
  for (uint32_t chunk = first; chunk < end; ++chunk) {
    leaving_ -= chunks_[chunk].leaving ? 1 : 0;
    chunks_[chunk] = Chunk{};
  }
  aside_ &= ~(uint64_t{1} << frame);
  for (OpenSlabs& of_class : open_slabs_) {
    of_class.in_frame[frame] = {};
    of_class.frames &= ~(uint64_t{1} << frame);
  }
  return {};
}

}  // namespace pmstore::internal
