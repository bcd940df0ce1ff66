// FileArea: the part of a pool that holds file data: units of kUnitBytes, in one or more sections.
//
// A section is an extent of the pool: a header, and units behind it. The first section is made with
// the area and stays. Later sections are made when the area is full, and removed when they are
// empty. What the units hold and which of them are in use is not known here: see
// fs/local_data_space.h. Invariants: units lie in their section's extent, at a multiple of
// kUnitBytes of the pool's memory; the numbers of units of two sections neither meet nor touch;
// a number of a unit is not used again by the same object; start() is above that of every open()
// before. Threads: one at a time. Lifetimes: the pool outlives it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "fs/layout/area_layout.h"
#include "fs/types.h"
#include "persist/pool.h"
#include "persist/two_copies.h"
#include "pmstore/server.h"
#include "service/identity.h"

namespace pmstore::fs {

// Whose data the units of an area hold: a file system whose namespace is in the same pool (server
// 0), or one that has added this area as a data server.
struct AreaOwner {
  uint64_t file_system = 0;  // 0: there is no owner, and all units are zero
  uint64_t epoch = 0;        // of its namespace server
  uint16_t server = 0;
  // Of the secret that its namespace server has. Not somebody: none has come with one so far.
  ClientId key = {};
  uint64_t start = 0;  // drawn by that start of its namespace server; 0: it has said none
  bool operator==(const AreaOwner&) const = default;
};

// Units that lie one behind the other in the memory of the pool. Offsets and ends count bytes of
// units by their numbers, as AreaRange does.
struct AreaSection {
  persist::Extent extent;
  uint64_t first_unit = 0;  // its number
  uint64_t units = 0;
  uint64_t units_offset = 0;  // in the extent

  uint64_t begin() const { return first_unit * kUnitBytes; }
  uint64_t bytes() const { return units * kUnitBytes; }
  uint64_t end() const { return begin() + bytes(); }
  bool has(uint64_t offset, uint64_t count) const {
    return offset >= begin() && offset < end() && count <= end() - offset;
  }
  // Of the first unit, in the pool's memory.
  uint64_t place() const { return extent.offset + units_offset; }
};

class FileArea {
 public:
  // Makes a file area of the room that format_store() made for it (FormatOptions::file_bytes).
  // Durable on return. NotFound: there is no room; AlreadyExists: there is an area. `identity`: of
  // the area; 0 for a random one. Tests give one.
  static Status format(persist::Pool& pool, uint64_t identity = 0);
  // Makes a file area of about so many bytes, at least least_section(), in a pool without one; it
  // appears with its header, or not at all. Durable on return. AlreadyExists; Full; Io.
  static Status create(persist::Pool& pool, uint64_t bytes, uint64_t identity = 0);
  // Has this pool one, damaged or not?
  static bool is_in(const persist::Pool& pool);
  // For a server: raises start(), durably. NotFound: there is none. BadPool: both copies of its
  // header are damaged; VersionMismatch; Io.
  static Result<FileArea> open(persist::Pool& pool);
  // open() without changing anything: start() is that of the last open(). Also of a view.
  static Result<FileArea> look(persist::Pool& pool);

  AreaOwner owner() const {
    const ClientId key(header_.owner_key[0], header_.owner_key[1]);
    return {header_.owner, header_.owner_epoch, header_.owner_index, key, header_.owner_start};
  }
  // A release that recorded no owners has served it: it may hold files of its own pool.
  bool may_have_unknown_owner() const {
    return header_.version == kFileAreaVersionWithoutOwner && header_.starts > 1;
  }
  // Of an area that open() gave. Durable on return. Io.
  Status set_owner(const AreaOwner& owner);

  uint64_t identity() const { return header_.identity; }
  // Counts open().
  uint64_t start() const { return header_.starts; }
  // Of all sections.
  uint64_t units() const;
  uint64_t bytes() const { return units() * kUnitBytes; }
  // Behind the last unit by number.
  uint64_t end() const { return sections_.back().end(); }
  persist::Memory& memory() const { return *memory_; }
  // As persist::Pool::next_data(): `place` is in memory().
  std::optional<uint64_t> next_data(uint64_t place) const { return pool_->next_data(place); }
  // By number. The first one has begin() 0, and is there always.
  const std::vector<AreaSection>& sections() const { return sections_; }
  // Of the first section: of its first unit, in memory(); and all its units.
  uint64_t offset() const { return sections_.front().place(); }
  std::span<std::byte> data() const { return {memory_->at(offset()), sections_.front().bytes()}; }

  // Of an area that open() gave. A later section of about so many bytes, at least least_section():
  // the header, and units that are zero. The extent and its header appear together or not at all;
  // durable on return. Full: the pool has no room; Io.
  Result<AreaSection> add_section(persist::Pool& pool, uint64_t bytes);
  // persist::Pool::zero_ahead() of add_section().
  Result<bool> zero_ahead(persist::Pool& pool, uint64_t bytes, uint64_t most_bytes) const;
  // The section, not the first one, is the pool's again; durable on return. No unit of it is in
  // use, and no device has a right to it. Unsupported: extents of this pool do not come back; Io.
  Status remove_section(persist::Pool& pool, uint64_t first_unit);
  // An extent for a section of one unit.
  static constexpr uint64_t least_section() { return kFileAreaHeaderBytes + 2 * kUnitBytes; }

 private:
  explicit FileArea(persist::Pool& pool, const persist::Extent& first);
  static Result<FileArea> in_extent_of(persist::Pool& pool);
  const persist::Extent& first_extent() const { return sections_.front().extent; }
  persist::TwoCopies<FileAreaHeader> header_copies() const {
    return {*memory_, first_extent().offset, kFileAreaCopyStride};
  }
  // Of an extent that is zero; durable on return.
  Status write_first_header(uint64_t identity);
  bool is_valid(const FileAreaHeader& header) const;
  Status find_sections(persist::Pool& pool);
  // What is stored outside of the extent and in its units does not share a msync.
  void separate(const persist::Extent& extent) const;
  // From here on the header says that there may be later sections.
  Status announce_sections();

  const persist::Pool* pool_;
  persist::Memory* memory_;
  std::vector<AreaSection> sections_;
  uint64_t next_unit_ = 0;  // numbers from it on were never used by this object
  FileAreaHeader header_{};
};

// format_store(), and FileArea::format() when there is room for file data: what a new pool begins
// with. Durable on return.
Status format_pool(persist::Pool& pool, const FormatOptions& options);

}  // namespace pmstore::fs
