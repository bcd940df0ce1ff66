// SlabArena: hands out record slots of every size class from the records extent
// (pmstore/layout/slab_layout.h).
//
// A slab whose slots are all free can be given back and claimed for another size class. Its base
// version then rises to the highest version that any of its slots has had, so that the versions of
// a slot never fall.
// Invariants: a slot is free or used, never both; per slab, free and used slots add up to
// slots_per_slab; a base version never falls. Threads: one. What is durable: a slab's header before
// any slot of it is handed out.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/result.h"
#include "persist/memory.h"
#include "persist/pool.h"
#include "persist/two_copies.h"
#include "pmstore/layout/slab_layout.h"
#include "pmstore/types.h"

namespace pmstore::internal {

class SlabArena {
 public:
  // The extent is [offset, offset + bytes) of the pool; `bytes` is a multiple of the chunk size.
  // Reads the slab headers; BadPool when both copies of one are damaged. Every slot counts as used
  // until free_slot() is called for it.
  static Result<SlabArena> open(persist::Pool& pool, uint64_t offset, uint64_t bytes);

  // After a crash of the process alone, the headers that open() has read may be in the CPU's caches
  // only. Durable on return. Must precede the first change, which overwrites the other copy of a
  // header. Io.
  Status make_headers_durable();

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

  // A free slot, which is used from here on. Full when neither the size class nor the extent has
  // room; Io.
  Result<SlotOffset> allocate(uint8_t size_class);
  // The slot is free from here on. CHECK: its slab has a used slot.
  void free_slot(SlotOffset slot);

  // A lower bound of the slot's version, which holds whatever its lock word shows.
  uint64_t base_version(SlotOffset slot) const;
  // `version_of` gives the present version of a slot; it is called when a slab is given back. Must
  // be set before allocate().
  void set_version_source(std::function<uint64_t(SlotOffset)> version_of) {
    version_of_ = std::move(version_of);
  }

  std::byte* at(SlotOffset slot) const { return memory_->at(offset_ + raw(slot)); }
  uint64_t offset() const { return offset_; }
  uint64_t bytes() const { return uint64_t{kChunkBytes} * chunks_.size(); }
  uint64_t used_slots() const { return used_slots_; }
  uint64_t free_chunks() const;

 private:
  struct Chunk {
    enum class Kind : uint8_t { kFree, kSlab, kInside } kind = Kind::kFree;
    uint8_t size_class = 0;
    uint32_t run = 1;    // of the slab, at its first chunk
    uint32_t first = 0;  // of an inside chunk: the slab's first
    uint32_t used = 0;   // slots handed out
    uint64_t base_version = 0;
    uint64_t generation = 0;  // of the header on the medium
  };
  SlabArena(persist::Memory& memory, uint64_t offset, uint64_t bytes);
  persist::TwoCopies<SlabHeader> header_copies(uint32_t chunk) const;
  Status read_headers(const persist::Pool& pool);
  Status write_header(uint32_t chunk, uint16_t size_class, uint32_t run, uint64_t base_version);
  Status claim(uint8_t size_class);
  Status clear_slots(uint32_t first, uint8_t size_class);
  std::optional<uint32_t> find_free_run(uint32_t run);
  Status give_back_empty_slabs();

  persist::Memory* memory_;
  uint64_t offset_;
  std::vector<Chunk> chunks_;
  std::optional<persist::Persisted> headers_durable_;  // since make_headers_durable()
  std::vector<uint32_t> free_slots_[kSizeClasses];     // slot offset / 64
  uint32_t search_from_ = 0;
  uint64_t used_slots_ = 0;
  std::function<uint64_t(SlotOffset)> version_of_;
};

}  // namespace pmstore::internal
