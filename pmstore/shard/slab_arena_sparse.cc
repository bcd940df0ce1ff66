// Of SlabArena: slabs of which little is used, and frames whose slabs fit elsewhere. What is in
// them moves (record_mover.h); here it is decided which, and their slots are kept back.
//
// A slab that is being emptied is closed: allocations do not look at it. When no slot of it is used
// any more it stays closed, and is given back as a slab without records (slab_arena_idle.cc), or
// where its room is needed. A frame that is being emptied is passed over
// by all allocations, as one that is set aside.
#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "pmstore/shard/slab_arena.h"

namespace pmstore::internal {

namespace {

static_assert(kSizeClasses <= 32, "a word has a bit for each size class");

// Of one call: chunks that are only looked at.
constexpr uint32_t kLooksForSparse = 16384;
// Of one record that moves: slabs without records.
constexpr uint32_t kSlabsPassedOver = 64;

}  // namespace

void SlabArena::note_use(uint32_t chunk, int64_t slots) {
  const Chunk& state = chunks_[chunk];
  Use& use = use_[state.size_class];
  use.slots += static_cast<uint64_t>(slots);
  const bool begins = slots > 0 && state.used == slots;
  const bool ends = slots < 0 && state.used == 0;
  uint64_t& chunks = used_chunks_in_[frames_.frame_of_chunk(chunk)];
  if (begins) {
    ++use.slabs;
    chunks += state.run;
  } else if (ends) {
    PMSTORE_CHECK(use.slabs > 0 && chunks >= state.run, "a slab begins to be used before it ends");
    --use.slabs;
    chunks -= state.run;
  }
  const uint64_t frame = uint64_t{1} << frames_.frame_of_chunk(chunk);
  // A record that has moved frees a slot of what is emptied: nothing new can be done.
  if (slots > 0 || is_emptying_slab(chunk) || (emptying_frame_ & frame) != 0) return;
  stuck_frames_ &= ~frame;
  stuck_classes_ &= ~(uint32_t{1} << state.size_class);
  if (!is_emptying() && !looks_sparse_)
    looks_sparse_ = is_sparse(state.size_class) || (ends && frame_to_empty());
}

// Slabs that would be unused if seven eighths of the others' slots were used.
uint64_t SlabArena::surplus_of(uint8_t size_class) const {
  const Use& use = use_[size_class];
  const uint64_t seven_slabs = uint64_t{slots_per_slab(size_class)} * 7;
  const uint64_t needed = (use.slots * 8 + seven_slabs - 1) / seven_slabs;
  return use.slabs - std::min(use.slabs, needed);
}

// Less than that is not worth it: slabs of so many chunks are kept anyway.
bool SlabArena::is_sparse(uint8_t size_class) const {
  const Use& use = use_[size_class];
  if (use.slots * 2 >= use.slabs * slots_per_slab(size_class)) return false;
  const uint64_t least = std::min<uint64_t>(kKeptChunks, frames_.frame_bytes() / kChunkBytes / 2);
  return surplus_of(size_class) * run_chunks_of(size_class) >= least;
}

std::optional<uint32_t> SlabArena::frame_to_empty() const {
  if (!frames_.extents_come_back()) return std::nullopt;
  uint64_t unused = unused_chunks_;  // in front of the frame
  for (uint32_t frame = frames_.most(); frame > 0; --frame) {
    const uint32_t last = frame - 1;
    if (is_aside(last)) continue;
    unused -= frames_.memory(last).size() / kChunkBytes - used_chunks_in_[last];
    if (used_chunks_in_[last] == 0 || (stuck_frames_ >> last & 1) != 0) continue;
    const uint64_t half = frames_.frame_bytes() / kChunkBytes / 2;
    const bool fits = frames_.comes_back(last) && (kept_frames_ >> last & 1) == 0 &&
                      used_chunks_in_[last] + half <= unused;
    return fits ? std::optional(last) : std::nullopt;
  }
  return std::nullopt;
}

uint32_t SlabArena::sparse_classes() const {
  uint32_t classes = 0;
  for (uint8_t each = 0; each < kSizeClasses; ++each) {
    if (is_sparse(each)) classes |= uint32_t{1} << each;
  }
  return classes;
}

void SlabArena::look_for_sparse() {
  if (is_emptying()) return;
  stuck_frames_ = 0;
  stuck_classes_ = 0;
  looks_sparse_ = sparse_classes() != 0 || frame_to_empty();
}

bool SlabArena::begin_emptying() {
  PMSTORE_CHECK(!is_emptying() && !emptying_slab_, "one thing is emptied at a time");
  looks_sparse_ = false;
  used_at_begin_ = used_slots_;
  use_at_begin_ = use_;
  move_from_ = 0;  // what was behind it may be a new frame now, whose first chunks come first
  emptying_classes_ = sparse_classes() & ~stuck_classes_;
  if (emptying_classes_ != 0) return true;
  const auto frame = frame_to_empty();
  if (frame) emptying_frame_ = uint64_t{1} << *frame;
  return frame.has_value();
}

bool SlabArena::is_to_be_emptied(uint32_t chunk) const {
  const Chunk& state = chunks_[chunk];
  if (state.kind != Chunk::Kind::kSlab || state.used == 0) return false;
  if ((emptying_frame_ >> frames_.frame_of_chunk(chunk) & 1) != 0) return true;
  return (emptying_classes_ >> state.size_class & 1) != 0 && surplus_of(state.size_class) > 0;
}

std::optional<SlabArena::Slab> SlabArena::next_to_empty(uint32_t& before) {
  PMSTORE_CHECK(!emptying_slab_, "one slab is emptied at a time");
  for (uint32_t looks = 0; before > 0 && looks < kLooksForSparse; ++looks) {
    const uint32_t chunk = --before;
    if (!is_to_be_emptied(chunk)) continue;
    Chunk& state = chunks_[chunk];
    if (emptying_frame_ == 0) {
      PMSTORE_CHECK(!state.closed, "a slab with records is closed once");
      state.closed = true;
      unlist_slab(chunk);
      emptying_slab_ = chunk;
    }
    return Slab{chunk, state.size_class, state.base_version};
  }
  return std::nullopt;
}

Result<SlotOffset> SlabArena::allocate_for_move(SlotOffset from) {
  const auto chunk = static_cast<uint32_t>(raw(from) / kChunkBytes);
  const uint8_t size_class = chunks_[chunk].size_class;
  const uint32_t frame = frames_.frame_of_chunk(chunk);
  const uint64_t own = uint64_t{1} << frame;
  const bool of_frame = emptying_frame_ == own;
  PMSTORE_CHECK(of_frame || is_emptying_slab(chunk), "records move out of what is emptied");
  // A new slab only saves something in front of a frame that goes as a whole.
  const uint64_t frames = of_frame ? own - 1 : own | (own - 1);
  std::optional<SlotOffset> taken;
  if (of_frame) {
    taken = take_free(size_class, frames);
  } else {
    PMSTORE_TRY(taken, take_beside_records(size_class, frames));
  }
  if (!taken && of_frame) {
    const uint32_t end = chunks_in(frame).first;
    PMSTORE_TRY(const auto first, free_run_for_move(run_chunks_of(size_class), end));
    if (first) {
      PMSTORE_TRY_STATUS(make_slab(*first, size_class));
      taken = take_free(size_class, frames);
    }
  }
  if (!taken) return make_error(ErrorCode::kFull);
  use(*taken, size_class);
  return *taken;
}

// Chunks below `end` that are free. Busy: slabs without records are given back, some at a time.
Result<std::optional<uint32_t>> SlabArena::free_run_for_move(uint32_t run, uint32_t end) {
  using Step = IdleLook::Step;
  const bool under_way = idle_look_.step != Step::kMark || idle_look_.chunk > 0;
  if (!under_way || idle_look_.step == Step::kWrite) {
    // Most often right behind the last one.
    auto first = find_free_run(run, move_from_, end);
    if (!first && !under_way) first = find_free_run(run, 0, end);
    if (first) {
      move_from_ = *first + run;
      return first;
    }
  }
  if (under_way) {
    PMSTORE_TRY_STATUS(step_idle_look(1, kKeptChunks));
    return make_error(ErrorCode::kBusy);
  }
  const auto first = find_unused_run(run, end);
  if (!first) return first;
  mark_unused_slabs(*first, end);
  move_from_ = *first;
  return make_error(ErrorCode::kBusy);
}

// It begins with a free chunk, or with the first one of a slab.
std::optional<uint32_t> SlabArena::find_unused_run(uint32_t run, uint32_t end) const {
  uint32_t length = 0;
  for (uint32_t chunk = 0; chunk < end; ++chunk) {
    if (frames_.begins_part(chunk)) length = 0;
    const bool inside = length == 0 && chunks_[chunk].kind == Chunk::Kind::kInside;
    const bool unused = is_unused(chunk) && !inside && !is_shut(frames_.frame_of_chunk(chunk));
    length = unused ? length + 1 : 0;
    if (length == run) return chunk + 1 - run;
  }
  return std::nullopt;
}

// From `first` on, as many as the frame that is emptied needs.
void SlabArena::mark_unused_slabs(uint32_t first, uint32_t end) {
  const uint64_t wanted = used_chunks_in_[std::countr_zero(emptying_frame_)];
  uint64_t marked = 0;
  for (uint32_t chunk = first; chunk < end && marked < wanted; ++chunk) {
    const Chunk& state = chunks_[chunk];
    if (state.kind != Chunk::Kind::kSlab || state.used > 0) continue;
    if (is_shut(frames_.frame_of_chunk(chunk))) continue;
    mark_leaving(chunk);
    marked += state.run;
  }
  idle_look_.step = IdleLook::Step::kWrite;
  idle_look_.chunk = first;
}

// In a slab with records: another one would become used, and would have to be emptied again. Those
// that have none are closed where they are met, and are free chunks soon: none is needed, because
// size classes give up slabs only where the others have room.
Result<std::optional<SlotOffset>> SlabArena::take_beside_records(uint8_t size_class,
                                                                 uint64_t frames) {
  for (uint32_t passed = 0; passed < kSlabsPassedOver; ++passed) {
    const auto chunk = early_slab(size_class, frames);
    if (!chunk) return std::optional<SlotOffset>();
    Chunk& slab = chunks_[*chunk];
    if (slab.used > 0) return std::optional(take_slot(*chunk));
    slab.closed = true;
    unlist_slab(*chunk);
  }
  return make_error(ErrorCode::kBusy);
}

// The slabs whose slots were freed last may be those that are emptied next. Then all records would
// move with each of them.
std::optional<uint32_t> SlabArena::early_slab(uint8_t size_class, uint64_t frames) {
  constexpr int kProbes = 16;
  const OpenSlabs& of_class = open_slabs_[size_class];
  const uint64_t open = of_class.frames & frames & ~(aside_ | emptying_frame_);
  if (open == 0) return std::nullopt;
  const auto& list = of_class.in_frame[static_cast<unsigned>(std::countr_zero(open))];
  uint32_t earliest = list.back();
  for (int probe = 0; probe < kProbes; ++probe) {
    earliest = std::min(earliest, list[probes_.below(list.size())]);
  }
  return earliest;
}

void SlabArena::end_emptying_slab() {
  if (!emptying_slab_) return;
  Chunk& state = chunks_[*emptying_slab_];
  PMSTORE_CHECK(state.kind == Chunk::Kind::kSlab && state.closed,
                "it is closed while it has slots");
  if (state.used > 0) {
    state.closed = false;
    if (!state.free.empty()) list_slab(*emptying_slab_);
  }
  emptying_slab_.reset();
}

bool SlabArena::is_being_emptied(const Slab& slab) const {
  const Chunk& state = chunks_[slab.first_chunk];
  if (state.kind != Chunk::Kind::kSlab || state.size_class != slab.size_class) return false;
  return is_emptying_slab(slab.first_chunk) ||
         (emptying_frame_ >> frames_.frame_of_chunk(slab.first_chunk) & 1) != 0;
}

// As many slabs have records as before, and it was not that others were inserted and erased.
bool SlabArena::was_in_vain(uint8_t size_class) const {
  const Use& before = use_at_begin_[size_class];
  const Use& now = use_[size_class];
  return now.slabs >= before.slabs && now.slots >= before.slots;
}

bool SlabArena::stop_emptying(uint8_t size_class) {
  PMSTORE_CHECK(!emptying_slab_, "the slab is closed, or handed out again");
  if (emptying_classes_ == 0) return false;
  emptying_classes_ &= ~(uint32_t{1} << size_class);
  if (was_in_vain(size_class)) stuck_classes_ |= uint32_t{1} << size_class;
  return emptying_classes_ != 0;
}

void SlabArena::end_emptying() {
  end_emptying_slab();
  emptying_classes_ = 0;
  emptying_frame_ = 0;
}

void SlabArena::end_round() {
  end_emptying_slab();
  for (uint32_t left = sparse_classes() & emptying_classes_; left != 0; left &= left - 1) {
    const auto size_class = static_cast<uint8_t>(std::countr_zero(left));
    if (was_in_vain(size_class)) stuck_classes_ |= uint32_t{1} << size_class;
  }
  // Else there is more to do than there was when it began.
  if (used_slots_ >= used_at_begin_) stuck_frames_ |= emptying_frame_;
  end_emptying();
}

// True: slots may be handed out that were kept back.
bool SlabArena::reopen() {
  const bool was = emptying_frame_ != 0 || emptying_slab_.has_value();
  end_emptying();
  return was;
}

}  // namespace pmstore::internal
