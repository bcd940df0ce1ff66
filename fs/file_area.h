// FileArea: the part of a pool that holds file data: units of kUnitBytes, behind a header.
//
// What the units hold and which of them are in use is not known here: see fs/local_data_space.h.
// Invariants: units lie in the area's extent, at a multiple of kUnitBytes of the pool's memory;
// start() is above that of every open() before. Threads: one at a time. Lifetimes: the pool
// outlives it.
#pragma once

#include <cstdint>
#include <span>

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

class FileArea {
 public:
  // Makes a file area of the room that format_store() made for it (FormatOptions::file_bytes).
  // Durable on return. NotFound: there is no room; AlreadyExists: there is an area. `identity`: of
  // the area; 0 for a random one. Tests give one.
  static Status format(persist::Pool& pool, uint64_t identity = 0);
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
  uint64_t units() const { return header_.units; }
  uint64_t bytes() const { return header_.units * kUnitBytes; }
  persist::Memory& memory() const { return *memory_; }
  // Of the first unit, in memory().
  uint64_t offset() const { return extent_.offset + header_.units_offset; }
  // All units.
  std::span<std::byte> data() const { return {memory_->at(offset()), bytes()}; }

 private:
  FileArea(persist::Pool& pool, const persist::Extent& extent)
      : memory_(&pool.memory()), extent_(extent) {}
  static Result<FileArea> in_extent_of(persist::Pool& pool);
  persist::TwoCopies<FileAreaHeader> header_copies() const {
    return {*memory_, extent_.offset, kFileAreaCopyStride};
  }
  bool is_valid(const FileAreaHeader& header) const;

  persist::Memory* memory_;
  persist::Extent extent_;
  FileAreaHeader header_{};
};

// format_store(), and FileArea::format() when there is room for file data: what a new pool begins
// with. Durable on return.
Status format_pool(persist::Pool& pool, const FormatOptions& options);

}  // namespace pmstore::fs
