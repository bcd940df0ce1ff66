// Of SlabArena: the headers that a start from a checkpoint has not read.
//
// What restore() knows of a header is what was written last, so a copy that says anything else is
// damage of the medium. The newest copy is written first, in its own place and with its generation:
// a crash meanwhile finds what it would have found before. Then the older one, with the same
// content and the next generation. So a copy from which a start can go on is never overwritten
// before the other one is right.
#include <cstring>

#include "base/check.h"
#include "persist/padding.h"
#include "persist/resident_pages.h"
#include "pmstore/shard/slab_arena.h"

namespace pmstore::internal {

namespace {

// Chunks of one call that have no header, for each that may have one.
constexpr uint32_t kLooksPerHeader = 64;
constexpr uint64_t kPageOfAHeader = 4096;

}  // namespace

Status SlabArena::look_at_headers(const persist::Pool& pool, uint32_t most) {
  HeaderLook& look = header_look_;
  const persist::ResidentPages* const resident = persist::ResidentPages::of(pool);
  look.over = look.over || !restored_;
  uint64_t data = 0;  // what lies before it, from the last header's on, is zero
  uint32_t headers = 0;
  for (uint32_t looks = 0; !look.over && looks < most * kLooksPerHeader; ++looks) {
    if (look.chunks >= chunks_.size()) {
      look.over = true;
      break;
    }
    const auto chunk = static_cast<uint32_t>(look.chunks++);
    const Chunk& state = chunks_[chunk];
    if (state.kind == Chunk::Kind::kNone || state.kind == Chunk::Kind::kInside) continue;
    if (chunk >= frames_.end_of_headers(frames_.frame_of_chunk(chunk))) continue;
    const uint64_t header_at = pool_offset(begin_of(chunk));
    if (data < header_at) data = pool.next_data(header_at).value_or(UINT64_MAX);
    if (state.generation == 0 && data >= header_at + kSlabHeaderBytes) continue;  // never used
    if (headers == most) {
      --look.chunks;
      break;
    }
    ++headers;
    PMSTORE_TRY(const bool mended, state.generation == 0 ? mend_unused(chunk) : mend_header(chunk));
    // Else all records would be resident afterwards.
    if (resident != nullptr) {
      resident->forget(persist::round_down(header_at, kPageOfAHeader), kChunkBytes);
    }
    if (mended) break;
  }
  return {};
}

// False: both copies are what was written there.
Result<bool> SlabArena::mend_header(uint32_t chunk) {
  const Chunk& state = chunks_[chunk];
  const bool is_slab = state.kind == Chunk::Kind::kSlab;
  const uint16_t size_class = is_slab ? state.size_class : kFreeRun;
  const uint32_t run = is_slab ? state.run : 1;
  SlabHeader expected = make_header(chunk, size_class, run, state.base_version);
  expected.crc = checksum_of(expected, chunk);
  const auto copy_of = [&](uint64_t generation) {
    SlabHeader header;
    std::memcpy(&header, at(begin_of(chunk)) + generation % 2 * kSlabCopyBytes, sizeof header);
    return header;
  };
  const persist::TwoCopies<SlabHeader> copies = header_copies(chunk);
  const SlabHeader newest = copy_of(state.generation);
  const SlabHeader older = copy_of(state.generation + 1);
  const bool newest_is_right = std::memcmp(&newest, &expected, sizeof newest) == 0;
  const bool older_is_right = state.generation == 1 ? copies.is_blank((state.generation + 1) % 2)
                                                    : older.generation + 1 == state.generation &&
                                                          is_header(older, chunk, end_of_chunks());
  if (newest_is_right && older_is_right) return false;
  PMSTORE_CHECK(headers_durable_, "nothing else may be on its way to the copy that is right");
  ++header_look_.mended;
  header_look_.lost += newest_is_right ? 0 : 1;
  const auto checksum = [chunk](const SlabHeader& next) { return checksum_of(next, chunk); };
  if (!newest_is_right) {
    --expected.generation;
    PMSTORE_TRY(headers_durable_, copies.write(*headers_durable_, expected, checksum));
    PMSTORE_CHECK(expected.generation == state.generation, "it is in its own place again");
  }
  if (!older_is_right) {
    PMSTORE_TRY_STATUS(write_header(chunk, size_class, run, state.base_version));
  }
  return true;
}

// A chunk that was never used has at most one torn copy, of a claim that a crash has interrupted. A
// start after a crash takes two for a slab.
Result<bool> SlabArena::mend_unused(uint32_t chunk) {
  const persist::TwoCopies<SlabHeader> copies = header_copies(chunk);
  if (copies.is_blank(0) || copies.is_blank(1)) return false;
  const auto found = *copies.read(
      [&](const SlabHeader& header) { return is_header(header, chunk, end_of_chunks()); });
  if (found) return false;
  ++header_look_.mended;
  ++header_look_.lost;
  const uint64_t base_version = chunks_[chunk].base_version;
  PMSTORE_TRY_STATUS(write_header(chunk, kFreeRun, 1, base_version));
  PMSTORE_TRY_STATUS(write_header(chunk, kFreeRun, 1, base_version));
  return true;
}

}  // namespace pmstore::internal
