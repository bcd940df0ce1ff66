// SlabArena: hands out record slots of every size class from the frames of slot space
// (pmstore/layout/slab_layout.h, record_frames.h).
//
// When no run of free chunks is left, the arena takes another extent from the pool, by way of
// set_growth_source(); only when the pool has none it is Full.
// A slab whose slots are all free can be given back and claimed for another size class. Its base
// version then rises to the highest version that any of its slots has had, so that the versions of
// a slot never fall.
// A frame without records is set aside before it is given back: no slot of it is handed out
// meanwhile, unless there is no other room.
// Slabs of which little is used can be emptied: their records move to other slabs, by transactions
// of the server (record_mover.h). No slot of such a slab is handed out meanwhile.
// Invariants: a slot is free or used, never both; a frame that is set aside has no used slot; per
// slab, free and used slots add up to slots_per_slab; a base version never falls; a slab that is
// closed has no used slot, or is the one that is being emptied; each slab that allocate() looks at
// has a slot to be handed out. Threads: one.
// What is durable: a slab's header before any slot of it is handed out.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/result.h"
#include "persist/memory.h"
#include "persist/pool.h"
#include "persist/two_copies.h"
#include "pmstore/layout/slab_layout.h"
#include "pmstore/shard/record_frames.h"
#include "pmstore/types.h"

namespace pmstore::internal {

class CheckpointReader;
class CheckpointWriter;

class SlabArena {
 public:
  // `header` is the catalog's. Reads the slab headers; BadPool when both copies of one are damaged,
  // and as RecordFrames::open(). Every slot counts as used until free_slot() is called for it.
  static Result<SlabArena> open(persist::Pool& pool, const CatalogHeader& header);
  // The same of a pool that was closed in order: from its checkpoint, no header is read. Damaged:
  // the checkpoint is.
  static Result<SlabArena> restore(persist::Pool& pool, const CatalogHeader& header,
                                   const CheckpointReader& checkpoint);
  // What restore() needs, in a section of its own.
  void save(CheckpointWriter& writer) const;

  // After a crash of the process alone, the headers that open() has read may be in the CPU's caches
  // only. Durable on return. Must precede the first change, which overwrites the other copy of a
  // header. Headers of a pool that was closed in order are durable as they are. Io.
  Status make_headers_durable();

  // ---- headers that restore() has not read (slab_arena_headers.cc) ----
  struct HeaderLook {
    uint64_t chunks = 0;  // from the first one on, that were looked at
    uint64_t mended = 0;  // headers with a copy that is not what was written there
    uint64_t lost = 0;    // those of them whose newest copy that is: a crash would cost the slab
    bool over = false;    // all were looked at
  };
  // Looks at the headers of about `most` more chunks. A copy that is damaged is written anew from
  // what the checkpoint said, and the call ends. Durable on return. After open() there is nothing
  // to look at. Io.
  Status look_at_headers(const persist::Pool& pool, uint32_t most);
  const HeaderLook& header_look() const { return header_look_; }

  struct Slab {
    uint32_t first_chunk;
    uint8_t size_class;
    uint64_t base_version;
  };
  void for_each_slab(const std::function<void(const Slab&)>& visit) const;
  SlotOffset slot_of(const Slab& slab, uint32_t index) const {
    return static_cast<SlotOffset>(slab.first_chunk * kChunkBytes + kSlabHeaderBytes +
                                   uint64_t{index} * kSlotBytes[slab.size_class]);
  }
  // The slab that has a slot at exactly this offset; nullopt when there is none, whatever the
  // number: clients send it.
  std::optional<Slab> slab_at(SlotOffset slot) const;
  // The slab whose run contains chunk `chunk` or the first one after it; for scans.
  std::optional<Slab> slab_from(uint32_t chunk) const;

  // A free slot, which is used from here on. Full when neither the size class nor the pool has
  // room; then nothing has changed, but that slabs without records are free chunks; Io.
  Result<SlotOffset> allocate(uint8_t size_class);
  // The slot is free from here on. CHECK: its slab has a used slot.
  void free_slot(SlotOffset slot);

  // By slab.
  template <typename Visit>
  void for_each_free_slot(Visit visit) const {
    for (uint32_t chunk = 0; chunk < chunks_.size(); ++chunk) {
      for (const uint16_t index : chunks_[chunk].free) visit(slot_at(chunk, index));
    }
  }
  // So many slabs of the size class have slots that allocate() hands out, if their frame is not
  // shut: each call looks at one of them.
  uint64_t open_slabs(uint8_t size_class) const;

  // A lower bound of the slot's version, which holds whatever its lock word shows.
  uint64_t base_version(SlotOffset slot) const;
  // `version_of` gives the present version of a slot; it is called when a slab is given back. Must
  // be set before allocate().
  void set_version_source(std::function<uint64_t(SlotOffset)> version_of) {
    version_of_ = std::move(version_of);
  }

  // What another extent of records must have: versions above `base_version`; and how much of the
  // pool must be left beside it. Without it the arena does not grow.
  struct Growth {
    uint64_t base_version;
    uint64_t kept_bytes;
  };
  void set_growth_source(std::function<Growth()> growth) { growth_ = std::move(growth); }
  // As RecordFrames: allocate() is Full where it would need an extent above the limit.
  void limit_to(uint64_t bytes) { frames_.limit_to(bytes); }

  // ---- slabs that are empty, in frames that stay (slab_arena_idle.cc) ----
  // Slabs without a used slot that keep their blocks, in chunks: records that come and go use them.
  static constexpr uint32_t kKeptChunks = 64;
  // A step of giving back slabs without a used slot, durably, beyond `kept` chunks of them from the
  // begin of slot space on: writes headers of about `most` chunks at a time. Between two steps
  // other calls may come. True: that was the last step. Io.
  Result<bool> give_back_idle_slabs(uint32_t most, uint32_t kept);
  // Calls `release` for ranges of the pool that are behind the headers of free chunks, in at most
  // `most` chunks: what an earlier slab left there is of no use. Whole pages, once for each use of
  // the chunk, unless `release` gives false: then no more are named. True: all were looked at, else
  // the next call goes on.
  using Release = std::function<bool(uint64_t offset, uint64_t bytes)>;
  bool take_leftovers(uint32_t most, const Release& release);
  // The pool keeps its blocks, or a device has pinned what slots lie in: from here on both of these
  // do nothing.
  void keep_blocks() { keeps_blocks_ = true; }

  // ---- slabs and frames that are emptied (slab_arena_sparse.cc) ----
  // A slot was freed, and records should move: begin_emptying() would find something. Not told of
  // while something is being emptied.
  bool looks_sparse() const { return looks_sparse_; }
  // As after a start: nothing was tried yet. Does nothing while something is being emptied.
  void look_for_sparse();
  // Decides what is to be emptied. First slabs of size classes that use less than half of their
  // slots, from the end of slot space on, until seven eighths of the rest are used. Then the last
  // frame with records, if unused chunks in front of it hold its slabs and half a frame more.
  // Size classes and frames that were tried in vain are passed over until a slot of theirs is
  // freed. False: nothing. CHECK: nothing is being emptied.
  bool begin_emptying();
  // The last slab below `before` that is to be emptied; no slot of it is handed out from here on.
  // Looks at some chunks; `before` is where the next call goes on, and 0 behind the last one.
  std::optional<Slab> next_to_empty(uint32_t& before);
  // A slot for the record in `from`, in another slab of the same size class: in a frame in front of
  // the one that is emptied, or in its own frame or one in front of it, and there in a slab with
  // records. Makes a slab where that saves a frame, of unused slabs too. Full: there is none. Busy:
  // it has looked at much, and goes on in the next call. Takes nothing from the pool. Io.
  Result<SlotOffset> allocate_for_move(SlotOffset from);
  // Since next_to_empty() has given it the slab may have become empty, and be free or another one.
  bool is_being_emptied(const Slab& slab) const;
  // Slots of the slab are handed out again, if it still has records.
  void end_emptying_slab();
  // There is no slot for a record: no slab of the size class, or of the frame, is emptied further
  // in this round. False: nothing is left to be emptied.
  bool stop_emptying(uint8_t size_class);
  // The same of all that is being emptied.
  void end_emptying();
  // The same, and all of it was tried. A size class whose slabs with records have become no fewer
  // is stuck, and so is a frame that has some, unless slots were freed meanwhile.
  void end_round();
  // begin_emptying() was the last of these calls; an allocation that finds no other room ends it.
  bool is_emptying() const { return emptying_classes_ != 0 || emptying_frame_ != 0; }
  bool is_emptying_slab(uint32_t chunk) const { return emptying_slab_ == chunk; }
  uint32_t end_of_chunks() const { return static_cast<uint32_t>(chunks_.size()); }

  // ---- frames that are empty ----
  // Rises when a frame is taken, when the last slot of one that can be given back is freed, and
  // when room elsewhere lets an empty one go, or as many slabs have become empty as
  // give_back_idle_slabs() keeps.
  uint64_t changes() const { return changes_; }
  // A frame that can be given back: no slot of it is used, and elsewhere at least half a frame is
  // free, and as much in one piece as a slot has ever taken, so that it is not missed at once. Not
  // one of those in `but_not`, which has a bit for each, or that are set aside; and none in a pool
  // whose extents do not come back.
  std::optional<uint32_t> empty_frame(uint64_t but_not) const;
  // empty_frame() does not name `frame` any more.
  void keep(uint32_t frame) { kept_frames_ |= uint64_t{1} << frame; }
  // Of `frame`, which empty_frame() has named (CHECK: it is empty), no slot is handed out from here
  // on, until it was given back and taken anew.
  void set_aside(uint32_t frame);
  // Undoes that. An allocation that finds no other room does so by itself.
  void take_in_again(uint32_t frame);
  bool is_aside(uint32_t frame) const { return (aside_ >> frame & 1) != 0; }
  // A bit for each frame that is set aside.
  uint64_t aside() const { return aside_; }
  // Looks at the versions of `chunks` more chunks of a frame that is set aside; false: there are
  // more. What it has seen highest_version() need not look at.
  bool look_at_versions(uint32_t frame, uint32_t chunks);
  // The highest version that a slot of `frame` has had. Requires that no slot of it is used.
  uint64_t highest_version(uint32_t frame);
  // Frees the extent of `frame`, which empty_frame() has named (CHECK: it is empty). `versions`
  // proves that highest_version() is durable as the base of later extents. Io.
  Status give_back(uint32_t frame, persist::Persisted versions);

  // Requires that the slot's frame has memory: that a slab was found there.
  std::byte* at(SlotOffset slot) const { return frames_.at(slot); }
  // Where the slot lies in the pool.
  uint64_t pool_offset(SlotOffset slot) const { return memory_->offset_of(at(slot)); }
  const RecordFrames& frames() const { return frames_; }
  // The records that were made with the pool: slot space from 0 on.
  std::span<std::byte> first_records() const { return frames_.first_records(); }
  // Every slot that there can ever be lies below it.
  uint64_t slot_space_bytes() const { return frames_.slot_space_bytes(); }
  // Of the extents that records have now.
  uint64_t bytes() const;
  uint64_t used_slots() const { return used_slots_; }
  uint64_t free_chunks() const;

 private:
  struct Chunk {
    // kNone: there is no memory for it.
    enum class Kind : uint8_t { kNone, kFree, kSlab, kInside } kind = Kind::kNone;
    uint8_t size_class = kSizeClasses;  // of a slab, at its first chunk; else none
    bool leftover = false;  // of a free chunk: a slab has been there, and its bytes may still be
    // Of a slab without a used slot: it will be free.
    bool leaving = false;
    // Of a slab: it is being emptied, or was; it will be free when no slot of it is used.
    bool closed = false;
    uint32_t run = 1;    // of the slab, at its first chunk
    uint32_t first = 0;  // of an inside chunk: the slab's first
    uint32_t used = 0;   // slots handed out
    uint64_t base_version = 0;
    uint64_t generation = 0;  // of the header on the medium
    // Of a slab: the numbers of its free slots. The last one is handed out first.
    std::vector<uint16_t> free;
    static constexpr uint32_t kNotListed = UINT32_MAX;
    uint32_t listed_at = kNotListed;  // in open_slabs_
  };
  SlabArena(persist::Memory& memory, RecordFrames frames);
  persist::TwoCopies<SlabHeader> header_copies(uint32_t chunk) const;
  SlotOffset begin_of(uint32_t chunk) const { return SlotOffset{chunk * kChunkBytes}; }
  void add(const RecordFrames::Part& part);
  Status read_headers(const persist::Pool& pool, const RecordFrames::Part& part);
  bool restore_chunks(const CheckpointReader& checkpoint);
  // A slab begins at `chunk`, all of its slots used.
  void set_slab(uint32_t chunk, uint8_t size_class, uint32_t run);
  // The other chunks of its run.
  void set_inside(uint32_t first, uint32_t run);
  Status write_header(uint32_t chunk, uint16_t size_class, uint32_t run, uint64_t base_version);
  // With the generation that is on the medium, and no checksum.
  SlabHeader make_header(uint32_t chunk, uint16_t size_class, uint32_t run,
                         uint64_t base_version) const;
  static uint32_t checksum_of(const SlabHeader& header, uint32_t chunk);
  // Whatever its generation is. `end` is that of the part in which the chunk lies.
  static bool is_header(const SlabHeader& header, uint32_t chunk, uint32_t end);
  Result<bool> mend_header(uint32_t chunk);
  Result<bool> mend_unused(uint32_t chunk);
  Status claim(uint8_t size_class);
  Status make_slab(uint32_t first, uint8_t size_class);
  Result<std::optional<uint32_t>> find_other_run(uint8_t size_class);
  Status grow(uint32_t run);
  Error no_room(uint32_t run) const;
  Status clear_slots(uint32_t first, uint8_t size_class);
  std::optional<uint32_t> find_free_run(uint32_t run);
  std::optional<uint32_t> find_free_run(uint32_t run, uint32_t begin, uint32_t end) const;
  Status give_back_empty_slabs(uint32_t run);
  std::optional<uint32_t> find_unused_run(uint32_t run, uint32_t end) const;
  void mark_unused_slabs(uint32_t first, uint32_t end);
  Result<std::optional<uint32_t>> free_run_for_move(uint32_t run, uint32_t end);
  Status give_back_slab(uint32_t chunk);
  bool is_shut(uint32_t frame) const { return ((aside_ | emptying_frame_) >> frame & 1) != 0; }
  void note_use(uint32_t chunk, int64_t slots);
  uint64_t surplus_of(uint8_t size_class) const;
  bool is_sparse(uint8_t size_class) const;
  uint32_t sparse_classes() const;
  std::optional<uint32_t> frame_to_empty() const;
  bool is_to_be_emptied(uint32_t chunk) const;
  bool reopen();
  bool was_in_vain(uint8_t size_class) const;
  Result<std::optional<SlotOffset>> take_beside_records(uint8_t size_class, uint64_t frames);
  std::optional<uint32_t> early_slab(uint8_t size_class, uint64_t frames);
  void use(SlotOffset slot, uint8_t size_class);
  Result<bool> step_idle_look(uint32_t most, uint32_t kept);
  void mark_idle_slabs(uint32_t kept);
  void mark_leaving(uint32_t chunk);
  Status write_leaving(uint32_t most);
  uint64_t highest_version_in(uint32_t chunk) const;
  bool is_unused(uint32_t chunk) const;
  bool has_run_beside(uint32_t frame) const;
  bool is_idle(uint32_t frame) const;
  uint64_t bytes_beside(uint32_t frame) const;
  bool lets_one_go(uint32_t chunk) const;
  bool is_in_large_run(uint32_t chunk) const;
  SlotOffset slot_at(uint32_t chunk, uint32_t index) const {
    return slot_of({chunk, chunks_[chunk].size_class, 0}, index);
  }
  // Slots of the slab may be handed out, and are not any more. Each does nothing when that is so.
  void list_slab(uint32_t chunk);
  void unlist_slab(uint32_t chunk);
  SlotOffset take_slot(uint32_t chunk);
  bool has_free(uint8_t size_class) const {
    return (open_slabs_[size_class].frames & ~(aside_ | emptying_frame_)) != 0;
  }
  // In one of `frames`, a bit for each, and in none that is shut.
  std::optional<SlotOffset> take_free(uint8_t size_class, uint64_t frames = UINT64_MAX);
  void count_used(uint32_t chunk, int64_t slots);
  // Chunks of `frame` begin and end there.
  std::pair<uint32_t, uint32_t> chunks_in(uint32_t frame) const;

  persist::Memory* memory_;
  RecordFrames frames_;
  std::vector<Chunk> chunks_;  // of slot space, up to the last one that has memory
  bool restored_ = false;      // the headers were durable before restore()
  HeaderLook header_look_;
  std::optional<persist::Persisted> headers_durable_;  // since make_headers_durable()
  // Slabs with free slots that are neither closed nor leaving, by their first chunks. So each has a
  // slot to be handed out, however many others have none.
  struct OpenSlabs {
    uint64_t frames = 0;  // a bit for each that has some
    std::array<std::vector<uint32_t>, kMostFrames> in_frame;
  };
  std::array<OpenSlabs, kSizeClasses> open_slabs_;
  uint32_t search_from_ = 0;
  uint64_t used_slots_ = 0;
  std::array<uint64_t, kMostFrames> used_in_frame_{};
  // That are free, or of slabs without a used slot, but for those of frames that are set aside.
  uint64_t unused_chunks_ = 0;
  uint32_t largest_run_ = 1;  // of chunks that one slot has taken
  uint64_t aside_ = 0;        // a bit for each frame
  // Of a frame that is set aside.
  struct SeenVersions {
    uint32_t chunks = 0;  // from its first one on
    uint64_t highest = 0;
  };
  std::array<SeenVersions, kMostFrames> seen_versions_{};
  uint64_t kept_frames_ = 0;  // a bit for each
  uint64_t changes_ = 1;
  uint32_t emptied_ = 0;  // chunks of slabs, since it last made changes_ rise
  // Where the next step goes on.
  struct IdleLook {
    // Slabs are marked as leaving, then headers are written.
    enum class Step : uint8_t { kMark, kWrite } step = Step::kMark;
    uint32_t chunk = 0;
    uint32_t kept = 0;  // chunks, of kMark
  } idle_look_;
  uint32_t leaving_ = 0;  // slabs
  // Slabs with a used slot, and those slots, of a size class.
  struct Use {
    uint64_t slabs = 0;
    uint64_t slots = 0;
  };
  std::array<Use, kSizeClasses> use_{};
  std::array<Use, kSizeClasses> use_at_begin_{};        // at begin_emptying()
  std::array<uint64_t, kMostFrames> used_chunks_in_{};  // of such slabs
  bool looks_sparse_ = false;
  uint32_t emptying_classes_ = 0;          // a bit for each size class
  uint64_t emptying_frame_ = 0;            // its bit
  uint64_t used_at_begin_ = 0;             // slots, at begin_emptying()
  uint32_t stuck_classes_ = 0;             // bits of those that were tried in vain
  uint64_t stuck_frames_ = 0;              // the same; meaningless for frames without records
  std::optional<uint32_t> emptying_slab_;  // its first chunk; not of emptying_frame_
  uint32_t move_from_ = 0;                 // where free_run_for_move() begins to look
  Random probes_{1};                       // of early_slab()
  uint32_t leftovers_from_ = 0;
  bool keeps_blocks_ = false;
  std::function<uint64_t(SlotOffset)> version_of_;
  std::function<Growth()> growth_;
};

}  // namespace pmstore::internal
