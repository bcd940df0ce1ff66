// Of SlabArena: slabs without a used slot in frames that stay, and what they leave in free chunks.
//
// A slab that is leaving has no used slot and gets none: allocate() does not look at it. It is free
// when its header says so, durably. Where slots are needed before that, give_back_empty_slabs()
// does the rest at once.
#include "base/check.h"
#include "pmstore/shard/slab_arena.h"

namespace pmstore::internal {

namespace {

constexpr uint64_t kPageBytes = 4096;
// Of one call: chunks that are only looked at, some 0.1 ms.
constexpr uint32_t kLooks = 16384;

}  // namespace

Result<bool> SlabArena::give_back_idle_slabs(uint32_t most, uint32_t kept) {
  if (keeps_blocks_) return true;
  return step_idle_look(most, kept);
}

Result<bool> SlabArena::step_idle_look(uint32_t most, uint32_t kept) {
  using Step = IdleLook::Step;
  switch (idle_look_.step) {
    case Step::kMark: mark_idle_slabs(kept); break;
    case Step::kWrite: PMSTORE_TRY_STATUS(write_leaving(most)); break;
  }
  if (idle_look_.step != Step::kWrite || idle_look_.chunk < chunks_.size()) return false;
  PMSTORE_CHECK(leaving_ == 0, "each slab that was leaving is free, or its frame is");
  idle_look_ = {};
  return true;
}

void SlabArena::mark_idle_slabs(uint32_t kept) {
  IdleLook& look = idle_look_;
  for (uint32_t looks = 0; look.chunk < chunks_.size() && looks < kLooks; ++looks, ++look.chunk) {
    Chunk& state = chunks_[look.chunk];
    const uint32_t frame = frames_.frame_of_chunk(look.chunk);
    if (state.kind != Chunk::Kind::kSlab || state.used != 0 || is_shut(frame)) continue;
    if (!state.closed && look.kept < kept) {
      look.kept += state.run;
      continue;
    }
    mark_leaving(look.chunk);
  }
  if (look.chunk < chunks_.size()) return;
  look.step = IdleLook::Step::kWrite;
  if (leaving_ > 0) look.chunk = 0;
}

void SlabArena::mark_leaving(uint32_t chunk) {
  Chunk& state = chunks_[chunk];
  PMSTORE_CHECK(!state.leaving && state.used == 0, "a round begins when the last one is over");
  unlist_slab(chunk);
  state.leaving = true;
  state.closed = false;
  if (is_emptying_slab(chunk)) emptying_slab_.reset();
  ++leaving_;
}

Status SlabArena::write_leaving(uint32_t most) {
  uint32_t written = 0;
  for (uint32_t looks = 0; idle_look_.chunk < chunks_.size() && looks < kLooks; ++looks) {
    if (written >= most) return {};
    const uint32_t chunk = idle_look_.chunk++;
    if (!chunks_[chunk].leaving) continue;
    PMSTORE_CHECK(chunks_[chunk].kind == Chunk::Kind::kSlab && chunks_[chunk].used == 0,
                  "no slot of a slab that is leaving is handed out");
    written += chunks_[chunk].run;
    PMSTORE_TRY_STATUS(give_back_slab(chunk));
  }
  return {};
}

bool SlabArena::take_leftovers(uint32_t most, const Release& release) {
  uint32_t& chunk = leftovers_from_;
  uint32_t count = 0;
  for (uint32_t looks = 0; chunk < chunks_.size() && looks < kLooks && count < most; ++looks) {
    const uint32_t at_chunk = chunk++;
    Chunk& state = chunks_[at_chunk];
    const bool is_free = state.kind == Chunk::Kind::kFree && state.leftover;
    if (!is_free || keeps_blocks_ || is_aside(frames_.frame_of_chunk(at_chunk))) continue;
    PMSTORE_CHECK(state.generation > 0, "the header that says that the chunk is free is durable");
    // The header's page stays, and the one in which the next chunk's header lies.
    const uint64_t begin_at = pool_offset(begin_of(at_chunk));
    const uint64_t begin = (begin_at + kSlabHeaderBytes + kPageBytes - 1) / kPageBytes * kPageBytes;
    const uint64_t end = (begin_at + kChunkBytes) / kPageBytes * kPageBytes;
    if (!release(begin, end - begin)) {
      chunk = static_cast<uint32_t>(chunks_.size());
      break;
    }
    state.leftover = false;
    ++count;
  }
  if (chunk < chunks_.size()) return false;
  leftovers_from_ = 0;
  return true;
}

}  // namespace pmstore::internal
