#include "pmstore/shard/record_frames.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "base/check.h"
#include "base/checksum.h"
#include "persist/padding.h"
#include "persist/sparse_blocks.h"

namespace pmstore::internal {

namespace {

uint32_t frame_crc(const FrameHeader& header) {
  const auto bytes = std::as_bytes(std::span(&header, 1));
  return base::crc32c(bytes.subspan(offsetof(FrameHeader, pool)), 0);
}

FrameProgress progress_of(const FrameHeader& header, uint32_t chunks) {
  FrameProgress progress{0, chunks};
  progress.crc = base::crc32c(std::as_bytes(std::span(&progress.chunks, 1)), header.crc);
  return progress;
}

uint32_t frame_chunks(const persist::Pool& pool, const CatalogHeader& header) {
  return header.version < kFirstVersionWithFrames ? usual_frame_chunks(pool.info().bytes)
                                                  : header.frame_chunks;
}

// Of records there can be so many extents.
uint32_t extents_of_records(const persist::PoolInfo& info) {
  return static_cast<uint32_t>(std::count_if(
      info.extents.begin(), info.extents.end(),
      [](const persist::Extent& extent) { return extent.kind == persist::ExtentKind::kRecords; }));
}

}  // namespace

RecordFrames::RecordFrames(persist::Pool& pool, const CatalogHeader& header)
    : pool_(&pool),
      identity_(header.pool),
      shift_(static_cast<unsigned>(
          std::countr_zero(uint64_t{frame_chunks(pool, header)} * kChunkBytes))),
      most_(frames_of(pool.info().bytes, frame_bytes())),
      first_bytes_(persist::round_down(header.records_bytes, kChunkBytes)) {
  for (uint32_t frame = 0; frame * frame_bytes() < first_bytes_; ++frame) {
    memory_of_[frame] = pool.memory().at(header.records_offset + frame * frame_bytes());
  }
}

Result<RecordFrames> RecordFrames::open(persist::Pool& pool, const CatalogHeader& header) {
  const uint64_t frame_bytes = uint64_t{frame_chunks(pool, header)} * kChunkBytes;
  if (!std::has_single_bit(frame_bytes) ||
      header.records_bytes > frames_of(pool.info().bytes, frame_bytes) * frame_bytes) {
    return make_error(ErrorCode::kBadPool,
                      pool.info().path +
                          ": the catalog's records do not fit its slot space; restore the pool "
                          "from a backup");
  }
  RecordFrames frames(pool, header);
  PMSTORE_TRY_STATUS(frames.find_extents(header));
  return frames;
}

Status RecordFrames::find_extents(const CatalogHeader& header) {
  for (const persist::Extent& extent : pool_->info().extents) {
    if (extent.kind != persist::ExtentKind::kRecords) continue;
    const bool first = extent.offset <= header.records_offset &&
                       header.records_offset < extent.offset + extent.bytes;
    if (first) continue;
    FrameHeader found{};
    FrameProgress progress{};
    if (extent.bytes >= kFrameHeaderBytes + kChunkBytes) {
      const std::byte* const at = pool_->memory().at(extent.offset);
      std::memcpy(&found, at, sizeof(found));
      std::memcpy(&progress, at + kFrameProgressOffset, sizeof(progress));
    }
    if (found.magic == kZeroedFrameMagic) progress = progress_of(found, found.chunks);
    const bool sound =
        (found.magic == kFrameMagic || found.magic == kZeroedFrameMagic) &&
        found.crc == frame_crc(found) && found.pool == identity_ && found.frame < most_ &&
        memory_of_[found.frame] == nullptr && found.chunks * kChunkBytes < frame_bytes() &&
        extent.bytes == kFrameHeaderBytes + found.chunks * kChunkBytes &&
        progress.crc == progress_of(found, progress.chunks).crc && progress.chunks <= found.chunks;
    if (!sound) {
      return make_error(ErrorCode::kBadPool,
                        pool_->info().path + ": the extent at offset " +
                            std::to_string(extent.offset) +
                            " holds records of no known place; restore the pool from a backup");
    }
    set(found.frame, extent, found, progress.chunks);
  }
  return {};
}

void RecordFrames::set(uint32_t frame, const persist::Extent& extent, const FrameHeader& header,
                       uint32_t headers) {
  PMSTORE_CHECK(frame < most_ && memory_of_[frame] == nullptr, "a frame has one extent at a time");
  memory_of_[frame] = pool_->memory().at(extent.offset + kFrameHeaderBytes);
  extent_of_[frame] = extent;
  header_of_[frame] = header;
  headers_of_[frame] = headers;
}

std::vector<RecordFrames::Part> RecordFrames::parts() const {
  std::vector<Part> parts;
  const auto first_chunks = static_cast<uint32_t>(first_bytes_ / kChunkBytes);
  parts.push_back({0, first_chunks, 0, first_chunks});
  const auto per_frame = static_cast<uint32_t>(frame_bytes() / kChunkBytes);
  for (uint32_t frame = 0; frame < most_; ++frame) {
    if (!comes_back(frame)) continue;
    const FrameHeader& header = header_of_[frame];
    parts.push_back({frame * per_frame, header.chunks, header.base_version, headers_of_[frame]});
  }
  return parts;
}

std::span<std::byte> RecordFrames::memory(uint32_t frame) const {
  PMSTORE_CHECK(frame < most_, "the caller asks for a frame that there can be");
  if (memory_of_[frame] == nullptr) return {};
  const uint64_t bytes = comes_back(frame)
                             ? header_of_[frame].chunks * kChunkBytes
                             : std::min(first_bytes_ - frame * frame_bytes(), frame_bytes());
  return {memory_of_[frame], bytes};
}

uint32_t RecordFrames::end_of_headers(uint32_t frame) const {
  const auto first = static_cast<uint32_t>(frame * frame_bytes() / kChunkBytes);
  if (comes_back(frame)) return first + headers_of_[frame];
  return first + static_cast<uint32_t>(memory(frame).size() / kChunkBytes);
}

// What was made with the pool was zeroed then, and an extent has the holes that it was made with.
// Blocks that were reserved, and never used, are not looked for: the file system would walk over
// all of them.
bool RecordFrames::is_zero(uint32_t chunk, uint32_t run) const {
  if (!comes_back(frame_of_chunk(chunk))) return true;
  if (persist::SparseBlocks::of(*pool_) == nullptr) return false;
  const auto data = pool_->next_data(offset_of(chunk));
  return !data || *data >= offset_of(chunk) + run * kChunkBytes;
}

Status RecordFrames::blank_headers(uint32_t end) {
  const uint32_t frame = frame_of_chunk(end - 1);
  if (end <= end_of_headers(frame)) return {};
  const uint32_t has = headers_of_[frame];
  const uint32_t chunks = header_of_[frame].chunks;
  const uint32_t needed = end - (end_of_headers(frame) - has);
  PMSTORE_CHECK(comes_back(frame) && needed <= chunks, "the frame has memory for its chunks");
  const uint32_t next =
      std::min(chunks, std::max(needed, has + frame_progress_step(frame_bytes())));
  blank(extent_of_[frame]->offset + kFrameHeaderBytes, has, next);
  PMSTORE_TRY(const persist::Persisted blanked, pool_->memory().drain());
  store_progress(blanked, frame, next);
  return {};
}

// Whatever was there before must not be taken for headers of this frame. Holes stay: a page that is
// stored to takes memory. Flushed, not durable.
void RecordFrames::blank(uint64_t first_chunk_at, uint32_t from, uint32_t end) {
  persist::Memory& memory = pool_->memory();
  const bool has_holes = persist::SparseBlocks::of(*pool_) != nullptr;
  uint64_t data = 0;  // what lies before it, from the last chunk's header on, is zero
  for (uint32_t chunk = from; chunk < end; ++chunk) {
    const uint64_t header_at = first_chunk_at + chunk * kChunkBytes;
    if (has_holes && data < header_at) {
      data = pool_->next_data(header_at).value_or(UINT64_MAX);
    }
    if (has_holes && data >= header_at + kSlabHeaderBytes) continue;
    memory.zero(memory.at(header_at), 2 * kSlabCopyBytes);
    memory.flush(memory.at(header_at), 2 * kSlabCopyBytes);
  }
}

// `headers` proves that the blank headers are durable. Before that a crash must find the earlier
// number. Flushed, not durable: as long as a crash may find the earlier number, none of these
// chunks has a header that counts.
void RecordFrames::store_progress(persist::Persisted /*headers*/, uint32_t frame, uint32_t chunks) {
  PMSTORE_CHECK(chunks > headers_of_[frame], "a chunk with a header keeps it");
  persist::Memory& memory = pool_->memory();
  const auto progress = std::bit_cast<uint64_t>(progress_of(header_of_[frame], chunks));
  auto* const at =
      reinterpret_cast<uint64_t*>(memory.at(extent_of_[frame]->offset + kFrameProgressOffset));
  memory.store64(at, progress);
  memory.flush(at, sizeof progress);
  headers_of_[frame] = chunks;
}

void RecordFrames::flush_progress() const {
  persist::Memory& memory = pool_->memory();
  for (const auto& extent : extent_of_) {
    if (!extent) continue;
    memory.flush(memory.at(extent->offset + kFrameProgressOffset), sizeof(FrameProgress));
  }
}

uint64_t RecordFrames::extent_bytes() const {
  uint64_t bytes = 0;
  for (const persist::Extent& extent : pool_->info().extents) {
    if (extent.kind == persist::ExtentKind::kRecords) bytes += extent.bytes;
  }
  return bytes;
}

bool RecordFrames::is_limited(uint32_t run) const {
  // A smaller one takes as much of the pool.
  const uint64_t least = std::max(kFrameHeaderBytes + run * kChunkBytes, pool_->least_extent());
  return bytes_below_limit() < least;
}

std::string RecordFrames::reserved_for_others(uint32_t run) const {
  const uint64_t least = kFrameHeaderBytes + run * kChunkBytes;
  constexpr auto kKind = persist::ExtentKind::kRecords;
  if (pool_->largest_free_extent() < least || pool_->room_for(kKind) >= least) return {};
  return pool_->reserved_for_others(kKind);
}

Result<RecordFrames::Part> RecordFrames::take(uint32_t run, uint64_t base_version,
                                              uint64_t kept_bytes) {
  const auto* const free = std::find(memory_of_.begin(), memory_of_.begin() + most_, nullptr);
  const auto frame = static_cast<uint32_t>(free - memory_of_.begin());
  const uint64_t most_free = pool_->room_for(persist::ExtentKind::kRecords, kept_bytes);
  const uint64_t least = kFrameHeaderBytes + run * kChunkBytes;
  if (frame == most_ || extents_of_records(pool_->info()) == kMostFrames ||
      run * kChunkBytes >= frame_bytes() || most_free < least || is_limited(run)) {
    return make_error(ErrorCode::kFull);
  }
  const uint64_t room = std::min(most_free, bytes_below_limit());
  const uint64_t bytes = std::min(persist::round_down(room - kFrameHeaderBytes, kChunkBytes),
                                  frame_bytes() - kChunkBytes);
  FrameHeader header{};
  header.magic = kFrameMagic;
  header.pool = identity_;
  header.frame = frame;
  header.chunks = static_cast<uint32_t>(bytes / kChunkBytes);
  header.base_version = base_version;
  header.crc = frame_crc(header);
  const uint32_t headers =
      std::min(header.chunks, std::max(run, frame_progress_step(frame_bytes())));
  const auto fill = [&](const persist::Extent& extent) {
    write_first(extent, header, headers);
    return Status();
  };
  const uint64_t whole = kFrameHeaderBytes + bytes;
  const auto extent = pool_->allocate_unzeroed(persist::ExtentKind::kRecords, whole, fill);
  if (!extent) return extent.error();
  set(frame, *extent, header, headers);
  PMSTORE_CHECK(extent_bytes() <= most_bytes_, "no extent is taken above the limit");
  return Part{static_cast<uint32_t>(frame * frame_bytes() / kChunkBytes), header.chunks,
              base_version, headers};
}

// The extent is published when all of that is durable, so the order of these stores does not count.
void RecordFrames::write_first(const persist::Extent& extent, const FrameHeader& header,
                               uint32_t headers) {
  persist::Memory& memory = pool_->memory();
  memory.write(memory.at(extent.offset), &header, sizeof(header));
  const FrameProgress progress = progress_of(header, headers);
  memory.write(memory.at(extent.offset + kFrameProgressOffset), &progress, sizeof(progress));
  blank(extent.offset + kFrameHeaderBytes, 0, headers);
}

Status RecordFrames::give_back(uint32_t frame, persist::Persisted /*versions*/) {
  PMSTORE_CHECK(frame < most_ && comes_back(frame), "what was made with the pool stays");
  PMSTORE_TRY_STATUS(pool_->free_extent(*extent_of_[frame]));
  memory_of_[frame] = nullptr;
  extent_of_[frame].reset();
  return {};
}

}  // namespace pmstore::internal
