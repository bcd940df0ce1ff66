// RecordFrames: slot space, and which memory of the pool is behind each of its frames
// (pmstore/layout/frame_layout.h).
//
// The first frames are the records that were made with the pool; they stay. Each other frame is an
// extent that is taken from the pool when records need room, and given back when none is left in
// it. Invariants: a frame has one piece of memory at most, and a frame's number is used again only
// with a base version that is at least as high as every version it ever had; the memory of two
// frames never overlaps; no extent is taken that brings all of them above the limit; a chunk that
// is used has a header, and no header is read that has not been written, or blanked, since its
// frame was taken. Threads: one. The pool is borrowed. Durable on return: take() and give_back().
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "persist/pool.h"
#include "pmstore/layout/catalog_layout.h"
#include "pmstore/layout/frame_layout.h"
#include "pmstore/types.h"

namespace pmstore::internal {

class RecordFrames {
 public:
  // Of a pool of any version. BadPool: an extent of records does not say which frame it is, or two
  // say the same.
  static Result<RecordFrames> open(persist::Pool& pool, const CatalogHeader& header);

  // Chunks that lie one behind the other in one extent.
  struct Part {
    uint32_t first_chunk;  // of slot space
    uint32_t chunks;
    uint64_t base_version;
    uint32_t headers;  // so many chunks have a header, or a blank one; the others were never used
    uint32_t end() const { return first_chunk + chunks; }
    uint32_t end_of_headers() const { return first_chunk + headers; }
  };
  // In the order of slot space.
  std::vector<Part> parts() const;

  // Where the slot lies. Requires that its frame has memory.
  std::byte* at(SlotOffset slot) const {
    return memory_of_[raw(slot) >> shift_] + (raw(slot) & (frame_bytes() - 1));
  }
  uint64_t frame_bytes() const { return uint64_t{1} << shift_; }
  uint32_t frame_of(SlotOffset slot) const { return static_cast<uint32_t>(raw(slot) >> shift_); }
  uint32_t frame_of_chunk(uint32_t chunk) const {
    return static_cast<uint32_t>(chunk * kChunkBytes >> shift_);
  }
  // Frames have numbers below it.
  uint32_t most() const { return most_; }
  uint64_t slot_space_bytes() const { return uint64_t{most_} << shift_; }
  // What was made with the pool: all of the first frames.
  std::span<std::byte> first_records() const { return {memory_of_[0], first_bytes_}; }
  // The memory of a frame, empty where it has none.
  std::span<std::byte> memory(uint32_t frame) const;
  // Chunks from here on have no header: they were never used since the frame was taken, and what is
  // in them is of no use.
  uint32_t end_of_headers(uint32_t frame) const;
  // From here on the chunks before `end` have headers, in the frame in which the last one of them
  // lies; and some more chunks, so that it takes no time for most. Those that had none have a blank
  // one, durably. That they have one is flushed, and durable with the next drain: it must precede
  // the first use of such a chunk, as that of its first header does. Io.
  Status blank_headers(uint32_t end);
  // After a crash of the process alone, what says which chunks have headers may be in the CPU's
  // caches only. Must precede the first change, with a drain behind it. Flushed, not durable.
  void flush_progress() const;
  // The chunks, which were never used, have nothing but zeros, durably.
  bool is_zero(uint32_t chunk, uint32_t run) const;
  // The frame was not made with the pool: it can be given back.
  bool comes_back(uint32_t frame) const { return extent_of_[frame].has_value(); }
  // Else give_back() frees nothing: the pool is of an earlier release.
  bool extents_come_back() const { return pool_->info().extents_come_back; }
  // A run of chunks may not go on here: the memory of `chunk` does not follow that of the one
  // before.
  bool begins_part(uint32_t chunk) const {
    return chunk * kChunkBytes % frame_bytes() == 0 &&
           (chunk == 0 || comes_back(frame_of_chunk(chunk)) ||
            comes_back(frame_of_chunk(chunk - 1)));
  }

  // The extents of records take no more of the pool than `bytes` together. What they have stays.
  void limit_to(uint64_t bytes) { most_bytes_ = bytes; }
  uint64_t limit_bytes() const { return most_bytes_; }
  // Of the extents of records, with what lies beside the slots of the first one.
  uint64_t extent_bytes() const;
  // An extent with `run` chunks would be above the limit.
  bool is_limited(uint32_t run) const;
  // What keeps an extent with `run` chunks away, that the pool would have room for: reserves of
  // others, in words. Empty: something else does.
  std::string reserved_for_others(uint32_t run) const;

  // Takes an extent for the lowest frame without one: `run` chunks at least, a whole frame if the
  // limit allows it and the pool has as much beside the reserves of others, and beside `kept_bytes`
  // for rings. Every version in it will be above `base_version`. It is not zeroed, so that a large
  // frame takes no longer than a small one. Full, and nothing has changed; Io.
  Result<Part> take(uint32_t run, uint64_t base_version, uint64_t kept_bytes);
  // Frees the extent of `frame`, which comes_back() (CHECK) and in which nothing is used any more.
  // Requires that a base version above all its versions is durable, which `versions` proves.
  // Unsupported: see extents_come_back(); Io.
  Status give_back(uint32_t frame, persist::Persisted versions);

 private:
  RecordFrames(persist::Pool& pool, const CatalogHeader& header);
  Status find_extents(const CatalogHeader& header);
  uint64_t bytes_below_limit() const {
    const uint64_t has = extent_bytes();
    return most_bytes_ - std::min(most_bytes_, has);
  }
  void set(uint32_t frame, const persist::Extent& extent, const FrameHeader& header,
           uint32_t headers);
  uint64_t offset_of(uint32_t chunk) const {
    return pool_->memory().offset_of(at(SlotOffset{chunk * kChunkBytes}));
  }
  void write_first(const persist::Extent& extent, const FrameHeader& header, uint32_t headers);
  void blank(uint64_t first_chunk_at, uint32_t from, uint32_t end);
  void store_progress(persist::Persisted headers, uint32_t frame, uint32_t chunks);

  persist::Pool* pool_;
  uint64_t identity_;  // the pool's
  unsigned shift_;
  uint32_t most_;
  uint64_t first_bytes_;              // of the records that were made with the pool
  uint64_t most_bytes_ = UINT64_MAX;  // of all extents of records
  std::array<std::byte*, kMostFrames> memory_of_{};
  std::array<std::optional<persist::Extent>, kMostFrames> extent_of_{};
  // Where extent_of_ has one.
  std::array<FrameHeader, kMostFrames> header_of_{};
  std::array<uint32_t, kMostFrames> headers_of_{};  // what FrameProgress has, with the next drain
};

}  // namespace pmstore::internal
