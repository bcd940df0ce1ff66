#include "pmstore/shard/slab_arena.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/checksum.h"
#include "base/size_text.h"
#include "persist/padding.h"
#include "pmstore/shard/slab_header_reads.h"

namespace pmstore::internal {

SlabArena::SlabArena(persist::Memory& memory, RecordFrames frames)
    : memory_(&memory), frames_(std::move(frames)) {
  chunks_.reserve(slot_space_bytes() / kChunkBytes);
}

Result<SlabArena> SlabArena::open(persist::Pool& pool, const CatalogHeader& header) {
  PMSTORE_TRY(RecordFrames frames, RecordFrames::open(pool, header));
  SlabArena arena(pool.memory(), std::move(frames));
  for (const RecordFrames::Part& part : arena.frames_.parts()) {
    arena.add(part);
    PMSTORE_TRY_STATUS(arena.read_headers(pool, part));
  }
  return arena;
}

persist::TwoCopies<SlabHeader> SlabArena::header_copies(uint32_t chunk) const {
  return {*memory_, pool_offset(begin_of(chunk)), kSlabCopyBytes};
}

uint32_t SlabArena::checksum_of(const SlabHeader& header, uint32_t chunk) {
  const auto bytes = std::as_bytes(std::span(&header, 1));
  return base::crc32c(bytes.subspan(offsetof(SlabHeader, generation)), chunk + 1);
}

bool SlabArena::is_header(const SlabHeader& header, uint32_t chunk, uint32_t end) {
  return header.magic == kSlabMagic && header.crc == checksum_of(header, chunk) &&
         header.run_chunks >= 1 && header.run_chunks <= end - chunk &&
         (header.size_class == kFreeRun ||
          (header.size_class < kSizeClasses &&
           header.run_chunks == run_chunks_of(static_cast<uint8_t>(header.size_class))));
}

void SlabArena::add(const RecordFrames::Part& part) {
  if (chunks_.size() < part.end()) chunks_.resize(part.end());
  for (uint32_t chunk = part.first_chunk; chunk < part.end(); ++chunk) {
    PMSTORE_CHECK(chunks_[chunk].kind == Chunk::Kind::kNone, "memory comes once");
    chunks_[chunk] = Chunk{};
    chunks_[chunk].kind = Chunk::Kind::kFree;
    chunks_[chunk].base_version = part.base_version;
  }
  unused_chunks_ += part.chunks;
}

Status SlabArena::read_headers(const persist::Pool& pool, const RecordFrames::Part& part) {
  SlabHeaderReads reads(*memory_, pool);
  uint64_t data = 0;        // what lies before it, from the last chunk's header on, is zero
  bool may_be_hole = true;  // of a file that is asked where the last header was blank
  for (uint32_t chunk = part.first_chunk; chunk < part.end_of_headers();) {
    const uint64_t header_at = pool_offset(begin_of(chunk));
    if (may_be_hole && data < header_at) data = pool.next_data(header_at).value_or(UINT64_MAX);
    may_be_hole = true;
    if (data >= header_at + kSlabHeaderBytes) {
      ++chunk;  // never used
      continue;
    }
    Chunk& state = chunks_[chunk];
    PMSTORE_TRY(const persist::TwoCopies<SlabHeader> copies, reads.at(chunk, header_at));
    const auto found = *copies.read(
        [&](const SlabHeader& header) { return is_header(header, chunk, part.end_of_headers()); });
    // A first claim that a crash interrupted leaves one torn copy beside a blank one: the slab was
    // never used.
    if (!found) {
      if (!copies.is_blank(0) && !copies.is_blank(1)) {
        return make_error(ErrorCode::kBadPool, "both headers of slab " + std::to_string(chunk) +
                                                   " are damaged; restore the pool from a backup");
      }
      ++chunk;
      continue;
    }
    may_be_hole = !reads.leaves_holes();
    const SlabHeader& newest = found->header;
    state.base_version = newest.base_version;
    state.generation = newest.generation;
    if (newest.size_class == kFreeRun) {
      // Each chunk of a run that was given back keeps the base version by itself (see give back).
      state.leftover = true;
      ++chunk;
      continue;
    }
    set_slab(chunk, static_cast<uint8_t>(newest.size_class), newest.run_chunks);
    chunk += newest.run_chunks;
  }
  return {};
}

void SlabArena::set_slab(uint32_t chunk, uint8_t size_class, uint32_t run) {
  Chunk& state = chunks_[chunk];
  state.kind = Chunk::Kind::kSlab;
  state.size_class = size_class;
  state.run = run;
  state.used = slots_per_slab(size_class);
  largest_run_ = std::max(largest_run_, run);
  count_used(chunk, state.used);
  set_inside(chunk, run);
}

void SlabArena::set_inside(uint32_t first, uint32_t run) {
  for (uint32_t i = 1; i < run; ++i) {
    Chunk& inside = chunks_[first + i];
    inside.kind = Chunk::Kind::kInside;
    inside.size_class = kSizeClasses;
    inside.first = first;
  }
}

Status SlabArena::make_headers_durable() {
  if (!restored_) frames_.flush_progress();
  for (uint32_t chunk = 0; chunk < chunks_.size() && !restored_; ++chunk) {
    if (chunks_[chunk].generation == 0) continue;
    memory_->flush(at(begin_of(chunk)), 2 * kSlabCopyBytes);
  }
  PMSTORE_TRY(headers_durable_, memory_->drain());
  return {};
}

void SlabArena::for_each_slab(const std::function<void(const Slab&)>& visit) const {
  for (uint32_t chunk = 0; chunk < chunks_.size(); ++chunk) {
    const Chunk& state = chunks_[chunk];
    if (state.kind != Chunk::Kind::kSlab) continue;
    visit({chunk, state.size_class, state.base_version});
  }
}

std::optional<SlabArena::Slab> SlabArena::slab_at(SlotOffset slot) const {
  uint64_t chunk = raw(slot) / kChunkBytes;
  if (chunk >= chunks_.size()) return std::nullopt;
  // Only slabs of one slot span chunks, and that slot starts in the first.
  const Chunk& state = chunks_[chunk];
  if (state.kind != Chunk::Kind::kSlab) return std::nullopt;
  const uint64_t inside = raw(slot) % kChunkBytes;
  if (inside < kSlabHeaderBytes) return std::nullopt;
  const uint64_t index = (inside - kSlabHeaderBytes) / kSlotBytes[state.size_class];
  if ((inside - kSlabHeaderBytes) % kSlotBytes[state.size_class] != 0) return std::nullopt;
  if (index >= slots_per_slab(state.size_class)) return std::nullopt;
  return Slab{static_cast<uint32_t>(chunk), state.size_class, state.base_version};
}

std::optional<SlabArena::Slab> SlabArena::slab_from(uint32_t chunk) const {
  if (chunk < chunks_.size() && chunks_[chunk].kind == Chunk::Kind::kInside) {
    chunk = chunks_[chunk].first;
  }
  for (; chunk < chunks_.size(); ++chunk) {
    const Chunk& state = chunks_[chunk];
    if (state.kind == Chunk::Kind::kSlab) return Slab{chunk, state.size_class, state.base_version};
  }
  return std::nullopt;
}

uint64_t SlabArena::base_version(SlotOffset slot) const {
  return chunks_[raw(slot) / kChunkBytes].base_version;
}

uint64_t SlabArena::bytes() const {
  uint64_t bytes = 0;
  for (uint32_t frame = 0; frame < frames_.most(); ++frame) bytes += frames_.memory(frame).size();
  return bytes;
}

uint64_t SlabArena::free_chunks() const {
  return static_cast<uint64_t>(std::count_if(
      chunks_.begin(), chunks_.end(), [](const Chunk& c) { return c.kind == Chunk::Kind::kFree; }));
}

SlabHeader SlabArena::make_header(uint32_t chunk, uint16_t size_class, uint32_t run,
                                  uint64_t base_version) const {
  SlabHeader header{};
  header.magic = kSlabMagic;
  header.generation = chunks_[chunk].generation;
  header.base_version = base_version;
  header.run_chunks = run;
  header.size_class = size_class;
  return header;
}

Status SlabArena::write_header(uint32_t chunk, uint16_t size_class, uint32_t run,
                               uint64_t base_version) {
  PMSTORE_CHECK(headers_durable_, "a header that was found may be in the CPU's caches only");
  SlabHeader header = make_header(chunk, size_class, run, base_version);
  const auto checksum = [chunk](const SlabHeader& next) { return checksum_of(next, chunk); };
  PMSTORE_TRY(headers_durable_, header_copies(chunk).write(*headers_durable_, header, checksum));
  chunks_[chunk].generation = header.generation;
  return {};
}

std::optional<uint32_t> SlabArena::find_free_run(uint32_t run) {
  // Once from where the last search ended, once from the start.
  for (const uint32_t begin : {search_from_, uint32_t{0}}) {
    const auto first = find_free_run(run, begin, end_of_chunks());
    if (!first) continue;
    search_from_ = *first + run;
    return first;
  }
  return std::nullopt;
}

std::optional<uint32_t> SlabArena::find_free_run(uint32_t run, uint32_t begin, uint32_t end) const {
  uint32_t length = 0;
  for (uint32_t chunk = begin; chunk < end; ++chunk) {
    if (frames_.begins_part(chunk)) length = 0;
    if (is_shut(frames_.frame_of_chunk(chunk))) {
      length = 0;
      continue;
    }
    length = chunks_[chunk].kind == Chunk::Kind::kFree ? length + 1 : 0;
    if (length == run) return chunk + 1 - run;
  }
  return std::nullopt;
}

// Leftovers would look like torn records: every slot starts out as never written. No more than the
// start of each slot is zeroed before the header is durable, because until then the headers of the
// run's other chunks count.
Status SlabArena::clear_slots(uint32_t first, uint8_t size_class) {
  bool used = false;
  for (uint32_t i = 0; i < run_chunks_of(size_class); ++i)
    used |= chunks_[first + i].generation > 0;
  if (!used && frames_.is_zero(first, run_chunks_of(size_class))) return {};
  for (uint32_t i = 0; i < slots_per_slab(size_class); ++i) {
    std::byte* slot = at(slot_of({first, size_class, 0}, i));
    memory_->zero(slot, persist::kLineBytes);
    memory_->flush(slot, persist::kLineBytes);
  }
  auto durable = memory_->drain();
  if (!durable) return durable.error();
  return {};
}

Error SlabArena::no_room(uint32_t run) const {
  const std::string reserved = frames_.reserved_for_others(run);
  if (!frames_.is_limited(run) && !reserved.empty()) {
    return make_error(ErrorCode::kFull,
                      "records have " + base::size_text(frames_.extent_bytes()) +
                          " of the pool, and of what is free is reserved " + reserved +
                          ": delete records, or lower the reserve (pmstore pool limit)");
  }
  if (!frames_.is_limited(run)) {
    return make_error(ErrorCode::kFull,
                      "the pool has no room for another record of this size; "
                      "delete records or use a larger pool");
  }
  return make_error(
      ErrorCode::kFull,
      "records have " + base::size_text(frames_.extent_bytes()) +
          " of the pool and are limited to " + base::size_text(frames_.limit_bytes()) +
          ": delete records, or give a higher limit (pmstored --record-limit, pmstore pool limit)");
}

Status SlabArena::grow(uint32_t run) {
  if (!growth_) return no_room(run);
  const Growth growth = growth_();
  const auto taken = frames_.take(run, growth.base_version, growth.kept_bytes);
  if (!taken) return taken.code() == ErrorCode::kFull ? no_room(run) : taken.error();
  add(*taken);
  search_from_ = taken->first_chunk;
  ++changes_;
  return {};
}

void SlabArena::count_used(uint32_t chunk, int64_t slots) {
  const uint32_t frame = frames_.frame_of_chunk(chunk);
  used_slots_ += static_cast<uint64_t>(slots);
  used_in_frame_[frame] += static_cast<uint64_t>(slots);
  // The first slots of a slab that is used from here on, or the last one.
  const Chunk& state = chunks_[chunk];
  if (slots > 0 && state.used == slots) unused_chunks_ -= state.run;
  if (slots < 0 && state.used == 0) unused_chunks_ += state.run;
  if (slots < 0 && state.used == 0) emptied_ += state.run;
  if (emptied_ >= kKeptChunks && !keeps_blocks_) {
    emptied_ = 0;
    ++changes_;
  }
  if (used_in_frame_[frame] == 0 && frames_.comes_back(frame)) ++changes_;
  if (slots < 0 && state.used == 0 && lets_one_go(chunk)) ++changes_;
  note_use(chunk, slots);
}

Status SlabArena::claim(uint8_t size_class) {
  const uint32_t run = run_chunks_of(size_class);
  auto first = find_free_run(run);
  if (!first) {
    PMSTORE_TRY(first, find_other_run(size_class));
    if (!first) return {};  // a slot of that size is free now
  }
  PMSTORE_CHECK(!has_free(size_class), "a slab is claimed when its size class has no free slot");
  return make_slab(*first, size_class);
}

// Of a free run.
Status SlabArena::make_slab(uint32_t first, uint8_t size_class) {
  const uint32_t run = run_chunks_of(size_class);
  uint64_t base = 0;
  for (uint32_t i = 0; i < run; ++i) base = std::max(base, chunks_[first + i].base_version);
  for (uint32_t i = 0; i < run; ++i) {
    PMSTORE_CHECK(chunks_[first + i].kind == Chunk::Kind::kFree, "a slab's chunks were free");
  }
  PMSTORE_TRY_STATUS(frames_.blank_headers(first + run));
  PMSTORE_TRY_STATUS(clear_slots(first, size_class));
  PMSTORE_TRY_STATUS(write_header(first, size_class, run, base));
  Chunk& state = chunks_[first];
  PMSTORE_CHECK(base >= state.base_version, "a base version never falls");
  state.kind = Chunk::Kind::kSlab;
  state.size_class = size_class;
  state.run = run;
  state.used = 0;
  state.base_version = base;
  largest_run_ = std::max(largest_run_, run);  // a claim that has failed holds no frame back
  set_inside(first, run);
  const uint32_t slots = slots_per_slab(size_class);
  PMSTORE_CHECK(state.free.empty(), "what was no slab had no slots");
  state.free.reserve(slots);
  for (uint32_t i = slots; i > 0; --i) {  // the lowest is handed out first
    state.free.push_back(static_cast<uint16_t>(i - 1));
  }
  list_slab(first);
  return {};
}

// A run where find_free_run() finds none. nullopt: the size class has a free slot now.
Result<std::optional<uint32_t>> SlabArena::find_other_run(uint8_t size_class) {
  const uint32_t run = run_chunks_of(size_class);
  while (true) {
    PMSTORE_TRY_STATUS(give_back_empty_slabs(run));
    search_from_ = 0;
    if (const auto first = find_free_run(run)) return first;
    if (reopen()) {
      if (has_free(size_class)) return std::optional<uint32_t>();
      continue;
    }
    if (aside_ == 0) break;
    // What was to go is used before the pool has to give more.
    take_in_again(static_cast<uint32_t>(std::countr_zero(aside_)));
    if (has_free(size_class)) return std::optional<uint32_t>();
  }
  PMSTORE_TRY_STATUS(grow(run));
  const auto first = find_free_run(run);
  PMSTORE_CHECK(first.has_value(), "what was taken from the pool has room for the run");
  return first;
}

// Each costs a drain. So no more are given back in one turn than make room for the run, and for the
// next ones: then all chunks are gone through once for many slabs.
Status SlabArena::give_back_empty_slabs(uint32_t run) {
  PMSTORE_CHECK(version_of_ != nullptr, "without versions a base version could fall");
  constexpr uint32_t kSlabsAtATime = 64;
  uint32_t slabs = 0;
  for (uint32_t chunk = 0; chunk < chunks_.size(); ++chunk) {
    Chunk& state = chunks_[chunk];
    if (state.kind != Chunk::Kind::kSlab || state.used > 0) continue;
    if (is_aside(frames_.frame_of_chunk(chunk))) continue;
    PMSTORE_TRY_STATUS(give_back_slab(chunk));
    if (++slabs % kSlabsAtATime == 0 && find_free_run(run, 0, end_of_chunks())) break;
  }
  return {};
}

Status SlabArena::give_back_slab(uint32_t chunk) {
  unlist_slab(chunk);
  const uint64_t highest = highest_version_in(chunk);
  const uint32_t run = chunks_[chunk].run;
  // From the last chunk to the first: until the first one's header says that the run is free, the
  // whole run is still this slab, so a crash in between changes nothing.
  for (uint32_t i = run; i > 0; --i) {
    const uint32_t member = chunk + i - 1;
    // What lies inside a run is record bytes, not a header: its generation starts anew, with both
    // copies blank.
    if (i > 1) {
      std::byte* const header = at(begin_of(member));
      memory_->zero(header, kSlabHeaderBytes);
      memory_->flush(header, kSlabHeaderBytes);
      chunks_[member].generation = 0;
    }
    PMSTORE_TRY_STATUS(write_header(member, kFreeRun, 1, highest));
    chunks_[member].base_version = highest;
  }
  for (uint32_t i = 0; i < run; ++i) {
    chunks_[chunk + i].kind = Chunk::Kind::kFree;
    chunks_[chunk + i].size_class = kSizeClasses;
    chunks_[chunk + i].leftover = true;
  }
  chunks_[chunk].free = {};
  if (std::exchange(chunks_[chunk].leaving, false)) --leaving_;
  chunks_[chunk].closed = false;
  if (is_emptying_slab(chunk)) emptying_slab_.reset();
  return {};
}

uint64_t SlabArena::open_slabs(uint8_t size_class) const {
  uint64_t slabs = 0;
  for (const auto& list : open_slabs_[size_class].in_frame) slabs += list.size();
  return slabs;
}

void SlabArena::list_slab(uint32_t chunk) {
  Chunk& state = chunks_[chunk];
  PMSTORE_CHECK(!state.free.empty() && !state.closed && !state.leaving,
                "a slab that is listed has a slot to be handed out");
  if (state.listed_at != Chunk::kNotListed) return;
  const uint32_t frame = frames_.frame_of_chunk(chunk);
  OpenSlabs& of_class = open_slabs_[state.size_class];
  state.listed_at = static_cast<uint32_t>(of_class.in_frame[frame].size());
  of_class.in_frame[frame].push_back(chunk);
  of_class.frames |= uint64_t{1} << frame;
}

void SlabArena::unlist_slab(uint32_t chunk) {
  const uint32_t at = std::exchange(chunks_[chunk].listed_at, Chunk::kNotListed);
  if (at == Chunk::kNotListed) return;
  const uint32_t frame = frames_.frame_of_chunk(chunk);
  OpenSlabs& of_class = open_slabs_[chunks_[chunk].size_class];
  auto& list = of_class.in_frame[frame];
  PMSTORE_CHECK(at < list.size() && list[at] == chunk, "a slab knows its place in the list");
  if (list.back() != chunk) {
    list[at] = list.back();
    chunks_[list[at]].listed_at = at;
  }
  list.pop_back();
  if (list.empty()) of_class.frames &= ~(uint64_t{1} << frame);
}

// Of a slab that is listed.
SlotOffset SlabArena::take_slot(uint32_t chunk) {
  // A full slab keeps memory for a few that come and go.
  constexpr size_t kKeptNumbers = 16;
  Chunk& state = chunks_[chunk];
  PMSTORE_CHECK(!state.free.empty(), "a slab that is listed has a slot to be handed out");
  const SlotOffset slot = slot_at(chunk, state.free.back());
  state.free.pop_back();
  if (state.free.empty()) {
    unlist_slab(chunk);
    if (state.free.capacity() > kKeptNumbers) state.free = {};
  }
  return slot;
}

// From the begin of slot space, so that frames at its end become empty.
std::optional<SlotOffset> SlabArena::take_free(uint8_t size_class, uint64_t frames) {
  OpenSlabs& of_class = open_slabs_[size_class];
  const uint64_t open = of_class.frames & frames & ~(aside_ | emptying_frame_);
  if (open == 0) return std::nullopt;
  return take_slot(of_class.in_frame[static_cast<unsigned>(std::countr_zero(open))].back());
}

Result<SlotOffset> SlabArena::allocate(uint8_t size_class) {
  std::optional<SlotOffset> taken = take_free(size_class);
  while (!taken) {
    auto claimed = claim(size_class);
    if (!claimed) return claimed.error();
    taken = take_free(size_class);
  }
  use(*taken, size_class);
  return *taken;
}

void SlabArena::use(SlotOffset slot, uint8_t size_class) {
  Chunk& state = chunks_[raw(slot) / kChunkBytes];
  ++state.used;
  PMSTORE_CHECK(state.kind == Chunk::Kind::kSlab && state.size_class == size_class &&
                    state.used <= slots_per_slab(size_class) && !state.closed && !state.leaving,
                "a slot is handed out once, by its own size class");
  count_used(static_cast<uint32_t>(raw(slot) / kChunkBytes), 1);
}

void SlabArena::free_slot(SlotOffset slot) {
  const auto chunk = static_cast<uint32_t>(raw(slot) / kChunkBytes);
  Chunk& state = chunks_[chunk];
  PMSTORE_CHECK(state.kind == Chunk::Kind::kSlab && state.used > 0, "only a used slot is freed");
  const uint64_t inside = raw(slot) % kChunkBytes - kSlabHeaderBytes;
  PMSTORE_CHECK(inside % kSlotBytes[state.size_class] == 0, "a slot begins there");
  --state.used;
  count_used(chunk, -1);
  state.free.push_back(static_cast<uint16_t>(inside / kSlotBytes[state.size_class]));
  if (!state.closed) list_slab(chunk);
}

}  // namespace pmstore::internal
