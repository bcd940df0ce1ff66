// FileCalls: opens and the data of regular files.
//
// Calls that change data or a map hold the exclusive lock of the inode's data, others the shared
// one; so two appenders never overlap, and what a call has read of the map holds until it ends.
// Transactions and what belongs to them are steps of their own that keep the lock until they end.
// Data is written in the caller's coroutine, because it borrows the caller's bytes; a DataSpace
// keeps writes of one place in order, so one that was given up does not overwrite a later one.
// Threads, errors: as Namespace. Lifetimes: core and maps outlive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/task.h"
#include "fs/internal/file_maps.h"
#include "fs/internal/namespace_core.h"

namespace pmstore::fs::internal {

// The data of a file has changed: its times, and its set-id bits.
void data_changed(Inode& inode, uint64_t now_ns);
// The same of a client's write by a map, some time ago: only the times. There were no set-id bits
// when it was written, and those that are there now were set behind it: see may_set_id().
void written_by_map(Inode& inode, uint64_t now_ns);

class FileCalls {
 public:
  FileCalls(NamespaceCore& core, FileMaps& maps) : core_(core), maps_(maps) {}

  // Owns its arguments, as all calls that change something without the caller's bytes.
  base::Task<PosixResult<Attributes>> open(Caller caller, Ino ino, int flags, OpenOwner owner);
  base::Task<PosixStatus> close(Ino ino, OpenOwner owner);
  base::Task<void> forget(OpenOwner owner);

  base::Task<PosixResult<Namespace::Mapped>> map(Ino ino, uint64_t offset, uint64_t bytes,
                                                 bool allocate);
  base::Task<PosixResult<Namespace::Reserved>> reserve(Ino ino, uint64_t offset, uint64_t bytes,
                                                       OpenOwner owner);
  base::Task<PosixResult<Attributes>> publish_reserved(Ino ino, uint64_t reservation, uint64_t size,
                                                       OpenOwner owner);
  base::Task<PosixResult<std::vector<std::byte>>> read(Ino ino, uint64_t offset, uint64_t bytes);
  base::Task<PosixResult<Namespace::Written>> write(Ino ino, std::optional<uint64_t> offset,
                                                    std::span<const std::byte> bytes, bool atomic);
  base::Task<PosixStatus> touch(Ino ino, Touch touch);
  // The caller, and a change that has a size.
  base::Task<PosixResult<Attributes>> change_size(Caller caller, Ino ino, AttributeChange change);
  base::Task<PosixResult<Attributes>> allocate(Ino ino, AllocateMode mode, uint64_t offset,
                                               uint64_t bytes);
  // Before a change of the mode that has no size: where it sets set-id bits of a file, the file's
  // maps end, so each write by a map is before it, and each write behind it is a call, which takes
  // the bits away. Gives the lock under which the mode is to be changed; nullptr: none is needed.
  // An error is that of the change.
  base::Task<PosixResult<SharedGuard>> may_set_id(Caller caller, Ino ino, AttributeChange change);

 private:
  // The last step of a call that has written data.
  struct Publish {
    uint64_t size = 0;                     // at least so large from now on
    std::optional<std::string> tail = {};  // inline from now on
    bool leaves_inline = false;
    bool keeps_times = false;
  };
  using Change = FileMaps::WithFirst;
  static constexpr size_t kMostMapped = 1024;  // extents in one answer
  static constexpr uint64_t kMostReserved = 16 * kMaxMessageData;

  base::Task<SharedGuard> lock(Ino ino);
  base::Task<PosixResult<Attributes>> publish(SharedGuard guard, Ino ino, Publish publish);
  base::Task<PosixResult<Attributes>> change_inode(SharedGuard guard, Ino ino, Change change);
  // Space for [from, to), and the data of an inline file in it; zeros up to `from`.
  base::Task<PosixStatus> make_room(SharedGuard guard, const Inode& inode, uint64_t from,
                                    uint64_t to);
  // As FileMaps::take_back(), as work of its own.
  base::Task<void> take_back(SharedGuard guard, Ino ino, FileMaps::Given given);
  // Bytes below the size take the place of those that are there, as a whole.
  base::Task<PosixResult<Attributes>> replace(SharedGuard guard, Ino ino, uint64_t offset,
                                              std::span<const std::byte> bytes);
  base::Task<PosixStatus> write_data(Ino ino, uint64_t offset, std::span<const std::byte> bytes);
  base::Task<PosixStatus> read_data(Ino ino, uint64_t offset, std::span<std::byte> into);
  base::Task<PosixStatus> leave_inline(SharedGuard guard, const Inode& inode);
  // The units of [offset, to), as far as one answer has them.
  base::Task<PosixStatus> map_into(Namespace::Mapped& mapped, Ino ino, uint64_t offset,
                                   uint64_t to);
  base::Task<PosixStatus> allocate_for_map(Ino ino, uint64_t offset, uint64_t bytes);
  base::Task<PosixResult<Attributes>> shrink(SharedGuard guard, Inode inode, uint64_t size,
                                             Change change);
  base::Task<PosixResult<Attributes>> grow(SharedGuard guard, Inode inode, uint64_t size,
                                           Change change);
  base::Task<PosixResult<Attributes>> set_size(SharedGuard guard, Inode inode, uint64_t size,
                                               Change change);
  base::Task<PosixResult<Attributes>> allocate_inline(SharedGuard guard, const Inode& inode,
                                                      AllocateMode mode, uint64_t from,
                                                      uint64_t to);
  // Zeros in what the range makes visible, or is to be zero, and inline data in its unit.
  base::Task<PosixStatus> fill_room(SharedGuard guard, Inode inode, AllocateMode mode,
                                    uint64_t from, uint64_t to, FileMaps::Given given);
  base::Task<PosixResult<Attributes>> punch(SharedGuard guard, const Inode& inode, uint64_t from,
                                            uint64_t to);

  NamespaceCore& core_;
  FileMaps& maps_;
};

}  // namespace pmstore::fs::internal
