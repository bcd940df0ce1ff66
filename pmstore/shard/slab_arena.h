// SlabArena: hands out record slots of every size class from the records extent.
//
// A slab whose slots are all free can be given back and claimed for another class; its base version
// then rises above everything that was ever written in it, so that versions never fall.
// Invariants: a slot is free or used, never both; used_slots(slab) + free slots = slots_per_slab.
// Threads: one. What is durable: a slab's header before any slot of it is handed out.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/result.h"
#include "persist/memory.h"
#include "persist/two_copies.h"
#include "pmstore/layout/slab_layout.h"
#include "pmstore/types.h"

namespace pmstore::internal {

class SlabArena {
 public:
  // [offset, offset + bytes) of `memory`, a multiple of the chunk size. Reads the slab headers;
  // BadPool when both copies of one are damaged. Every slot counts as used until free_slot() says
  // otherwise.
  static Result<SlabArena> open(persist::Memory& memory, uint64_t offset, uint64_t bytes);

  // The headers that were found may be in the CPU's caches only, after a crash of the process
  // alone; durable on return, and so before any of their other copies is overwritten.
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
  // The slab that has a slot exactly at `slot`; nullopt for any other number.
  std::optional<Slab> slab_at(SlotOffset slot) const;
  // The slab whose run contains chunk `chunk` or the first one after it; for scans.
  std::optional<Slab> slab_from(uint32_t chunk) const;

  // A free slot. Full when neither the class nor the extent has room.
  Result<SlotOffset> allocate(uint8_t size_class);
  void free_slot(SlotOffset slot);

  // The version that a slot has at least, whatever its lock word says.
  uint64_t base_version(SlotOffset slot) const;
  // Gives the present version of a slot; used when a slab is given back. Must be set before
  // allocate().
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
  Status read_headers();
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
