// Catalog: reads and writes the header and the extent table of persist/pool_layout.h.
//
// Static functions over bytes, so that they serve a live pool and a file that is only looked at.
// Every field that is read is checked first: nothing here trusts the medium.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "persist/memory.h"
#include "persist/padding.h"
#include "persist/pool_layout.h"

namespace pmstore::persist::internal {

struct Catalog {
  uint64_t layout_offset = 0;
  uint64_t root_offset = 0;
  PaddingRules padding;
  bool extents_come_back = false;  // kExtentsComeBack; else nothing is freed
  std::vector<Extent> extents;     // in the order of their entries
  // Of each entry that was ever used: the generation of its extent, or of its next one.
  std::vector<uint32_t> generations;

  // Makes header and table at `layout_offset`, which must be zero there; durable on return.
  static Status format(Memory& memory, uint64_t layout_offset, const PaddingRules& padding);
  // Header and table may be in the CPU's caches only, when the process that wrote them has died. To
  // be called before anybody relies on what read() has found. Io: drain().
  static Status make_durable(Memory& memory, uint64_t layout_offset);
  // BadPool or VersionMismatch, saying which, with `name` in the message. `pool` is the whole
  // mapping.
  static Result<Catalog> read(std::span<const std::byte> pool, uint64_t layout_offset,
                              std::string_view name);

  // Whether any extent, or header and table, lies in that part of the pool.
  bool covers(uint64_t offset, uint64_t bytes) const;
  // The entry that the next extent gets, with its generation. nullopt: the table is full.
  struct FreeEntry {
    uint32_t index;
    uint32_t generation;
  };
  std::optional<FreeEntry> free_entry() const;
  // What the entry of an extent says, and the tag that frees it.
  static ExtentEntry make_entry(const Extent& extent, uint64_t allocation);
  static uint64_t freed_tag(const Extent& extent);
  // The table on the medium has the extent from here on, or no more. CHECK: add() gets what
  // free_entry() gave, remove() one of extents.
  void add(const Extent& extent);
  void remove(const Extent& extent);
  bool has(const Extent& extent) const;
  // Where entry `index` is.
  static uint64_t entry_offset(uint64_t layout_offset, size_t index) {
    return layout_offset + sizeof(PoolHeader) + index * sizeof(ExtentEntry);
  }
};

// InvalidArgument for a kind that is none, or no bytes; Full when no entry is free; else the size
// to use.
Result<uint64_t> check_extent_request(const Catalog& catalog, ExtentKind kind, uint64_t bytes,
                                      std::string_view name);

// Unsupported: the pool is one that earlier programs open, and these know no entries that are free
// again.
Error nothing_is_freed(std::string_view name);

// Full: the pool's reserves do not leave so much to that kind.
Status check_reserves(Pool& pool, ExtentKind kind, uint64_t bytes);

// The one wording of "there is no room".
Error no_room(std::string_view name, uint64_t wanted_bytes, uint64_t largest_bytes);

}  // namespace pmstore::persist::internal
