// Pool: one file, fsdax file or DAX device of persistent memory, with a root area and a few
// extents.
//
// On PMDK: a libpmemobj pool whose root object starts with persist/pool_layout.h's header (magic,
// format version, checksum), followed by the extent table and kRootBytes for the owner's own
// catalog. libpmemobj makes pools and repairs them; while a pool is in use it is closed, and
// extents take and free chunks of its heap by single stores (persist/internal/pmemobj_heap.h). What
// is freed can become an extent of any kind. A plain region (DRAM or a mapping that somebody else
// owns) can carry the same layout; the modelled machine and unit tests use it.
//
// Opening a damaged, foreign, truncated or busy file changes nothing in it.
// Threads: one thread at a time. What is durable: create(), free_extent() and all that make
// an extent return durable results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "persist/domain.h"
#include "persist/extent.h"
#include "persist/memory.h"
#include "persist/padding.h"
#include "persist/space_rules.h"

namespace pmstore::persist {

class Pool;

inline constexpr size_t kRootBytes = 64 * 1024;  // the owner's catalog
inline constexpr size_t kMaxExtents = 64;
inline constexpr size_t kMinPoolBytes = 16u << 20;

struct PoolOpenOptions {
  // Treat the memory as this domain instead of the one detected; for benchmarks, and printed by
  // them.
  std::optional<Domain> assume_domain;
  size_t non_temporal_bytes = 256;  // rule H4
  // Of create(), for a file: its blocks are not reserved but taken when they are first written. A
  // file system that is full then ends the program with SIGBUS (persist/bus_errors.h).
  bool sparse = false;
  // Of create(): which of the rules H5, H6 and H7 the pool's writers follow. The pool keeps it, and
  // PoolInfo::padding has it at every opening.
  PaddingRules padding = {};
  // What the owner of the pool checks before anything in it is changed: it gets a view (see
  // Pool::view()). Its error becomes open()'s, and the file is untouched.
  std::function<Status(Pool& view)> accept = {};
};

struct PoolInfo {
  std::string path;
  std::string medium;  // "devdax", "fsdax", "file", "region"
  uint32_t format_version;
  uint64_t bytes;
  uint64_t
      free_bytes;  // not yet in extents, as far as the allocator can promise one more of this size
  Domain detected_domain;
  Domain domain;  // the one in force
  std::string domain_source;
  PaddingRules padding;  // that every writer of records, redo rings and logs follows
  std::vector<Extent> extents;
  bool extents_come_back = false;  // else free_extent() frees nothing
};

class Pool {
 public:
  // AlreadyExists when `path` holds anything (a DAX device: when it holds a pool, unless `force`);
  // InvalidArgument below kMinPoolBytes (a DAX device ignores `bytes`: its size counts); NotFound
  // when there is no such device below /dev, where a file, but in /dev/shm, would be memory that
  // nobody takes for that; Io; Full; and what `fill` says, which puts in what the pool shall begin
  // with. A file appears under its name when all that is durable, or never, whenever the process
  // ends. On a DAX device a process that is killed, or fails, leaves what `force` has to make anew:
  // a pool that is refused, or one with a part of what `fill` puts in.
  static Result<std::unique_ptr<Pool>> create(const std::string& path, uint64_t bytes,
                                              const PoolOpenOptions& options, bool force = false,
                                              const std::function<Status(Pool&)>& fill = {});
  // BadPool (not a pool, truncated, damaged: says which), VersionMismatch, Busy (another process
  // has it), Io (does not exist, no permission), and what options.accept says. The file is
  // untouched in each of these cases.
  static Result<std::unique_ptr<Pool>> open(const std::string& path,
                                            const PoolOpenOptions& options);
  // The pool to be read, after the checks of open() and with its errors: nothing in it is changed,
  // nobody can open it meanwhile (but view and inspect it), and a store to its memory or root ends
  // the program. It has no room for extents. What a crash has left undone in libpmemobj's metadata
  // is still undone in it; catalog and extents are never part of that.
  static Result<std::unique_ptr<Pool>> view(const std::string& path);
  // Makes the file `to`, with what `from` has and `change` makes of it. `from` is only read, and
  // nobody can open it meanwhile (but view and inspect it). `to` appears when all of it is durable,
  // or never, whenever the process ends. AlreadyExists when there is anything at `to`;
  // InvalidArgument when it is a device; Full; Io; errors of open() for `from`; and what `change`
  // says.
  static Status copy(const std::string& from, const std::string& to,
                     const std::function<Status(Pool&)>& change);
  // What the headers say; nothing is changed. Errors of open(), as far as the headers show them.
  static Result<PoolInfo> inspect(const std::string& path);
  // The same layout in plain memory that the caller keeps alive and has zeroed; `format` makes a
  // new one, with `padding`. `observer`, borrowed, watches the memory from the first step on.
  static Result<std::unique_ptr<Pool>> in_region(std::span<std::byte> region, Domain domain,
                                                 bool format, size_t non_temporal_bytes = 256,
                                                 Observer* observer = nullptr,
                                                 const PaddingRules& padding = {});

  virtual ~Pool() = default;
  virtual Memory& memory() = 0;
  virtual const PoolInfo& info() const = 0;
  // kRootBytes, 256-aligned, zero in a new pool.
  virtual std::span<std::byte> root() = 0;
  // Zeroed and durable, in the extent table, on return. Full when there is no room (says how much
  // there is), or when the room is reserved for other kinds (says for which); the extent's entry
  // and its memory appear together or not at all.
  Result<Extent> allocate_extent(ExtentKind kind, uint64_t bytes) {
    return allocate_filled(kind, bytes, {});
  }
  // The same with what `fill` puts into the zeroes and flushes, which is durable, too. When `fill`
  // fails, its error is the result and the extent does not exist; a crash in it leaves free space.
  // `fill` makes and frees no extents (CHECK).
  using ExtentFill = std::function<Status(const Extent& extent)>;
  Result<Extent> allocate_filled(ExtentKind kind, uint64_t bytes, const ExtentFill& fill) {
    return make_extent(kind, bytes, fill, ExtentRest::kZeroed);
  }
  // The same, but that all which `fill` does not write is what lay in this space before, of
  // whichever kind, or zero. It takes no time in which the extent's size counts. Holes are durable
  // zeroes, as next_data() finds them. The owner must never take the rest for its own.
  Result<Extent> allocate_unzeroed(ExtentKind kind, uint64_t bytes, const ExtentFill& fill) {
    return make_extent(kind, bytes, fill, ExtentRest::kAsItIs);
  }
  // A part of what allocate_filled() has to do, ahead of it: zeroes at most `most_bytes`, whole
  // XPLines, of the free space that an extent of that kind and size would get now. So an executor
  // that serves others makes a large extent in many turns. True: more of that space is left to
  // zero. False: an extent that is made now zeroes nothing, or is refused. What is
  // zeroed is flushed; it is durable with the extent, at the latest. The space stays free: another
  // extent that is made meanwhile may get it, and then more is left. Io: drain(), or the file
  // system.
  virtual Result<bool> zero_ahead(ExtentKind /*kind*/, uint64_t /*bytes*/,
                                  uint64_t /*most_bytes*/) {
    return false;
  }
  // Its space is free from here on, durably, whatever is in it; it is one of info().extents (CHECK:
  // also not a later one in its place). Nothing may refer to the extent any more, and no device may
  // have a right to it. Io: it may or may not be free after a restart; until then it is not.
  virtual Status free_extent(const Extent& extent) = 0;
  // Gives blocks of freed extents back to the file system, for at most `most_bytes` of the pool, in
  // a file that had holes when it was opened. False: there is nothing to give back. Io: the file
  // system did not take them; the next call tries again. Where that is never called, blocks stay
  // until the space is an extent's again.
  virtual Result<bool> release_blocks(uint64_t /*most_bytes*/) { return false; }
  // The largest extent that can still be allocated, whatever is reserved.
  virtual uint64_t largest_free_extent() = 0;
  // For each piece of free space, the largest extent that it has room for, if any. Of a view: one,
  // the largest.
  virtual std::vector<uint64_t> free_extents() = 0;
  // From here on allocate_filled() goes by these reserves. Without a call there are none. What the
  // pool keeps durably: persist/kept_space_rules.h.
  void set_space_rules(const SpaceRules& rules) { space_rules_ = rules; }
  const SpaceRules& space_rules() const { return space_rules_; }
  // The largest extent of that kind that can still be allocated beside the reserves of other kinds,
  // and beside `kept_for_rings`, if that is more than what rings have reserved.
  uint64_t room_for(ExtentKind kind, uint64_t kept_for_rings = 0);
  // What other kinds have reserved and do not use, in words; empty: nothing.
  std::string reserved_for_others(ExtentKind kind) const {
    return space_rules_.reserved_for_others(kind, info().extents);
  }
  // The first place at or behind `offset` that may not be zero, as far as it is known without
  // reading the memory: a file has holes where nothing was ever stored, and a page that is read is
  // one that takes memory. nullopt: all of the rest is zero.
  virtual std::optional<uint64_t> next_data(uint64_t offset) const = 0;
  // An extent up to this size takes as much of the pool as one of this size.
  virtual uint64_t least_extent() const = 0;

 protected:
  // Of an extent, all that its owner does not fill.
  enum class ExtentRest : uint8_t { kZeroed, kAsItIs };
  // allocate_filled() and allocate_unzeroed().
  virtual Result<Extent> make_extent(ExtentKind kind, uint64_t bytes, const ExtentFill& fill,
                                     ExtentRest rest) = 0;

 private:
  SpaceRules space_rules_;
};

}  // namespace pmstore::persist
