#include "fs/internal/file_calls.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "fs/internal/permissions.h"

namespace pmstore::fs::internal {
namespace {

int mask_of(int flags) {
  int mask = 0;
  const int mode = flags & O_ACCMODE;
  if (mode == O_RDONLY || mode == O_RDWR) mask |= R_OK;
  if (mode == O_WRONLY || mode == O_RDWR || (flags & O_TRUNC) != 0) mask |= W_OK;
  return mask;
}

PosixStatus check_open(const Caller& caller, const Inode& inode, int flags) {
  const int mask = mask_of(flags);
  if (inode.attributes.type == FileType::kSymlink) return PosixError(ELOOP);
  if (inode.is_directory()) {
    if ((mask & W_OK) != 0) return PosixError(EISDIR);
  } else if (!inode.is_regular()) {
    return PosixError(ENXIO, "it is no file whose data this file system has");
  }
  if ((flags & O_DIRECTORY) != 0 && !inode.is_directory()) return PosixError(ENOTDIR);
  return check_access(caller, inode.attributes, mask);
}

}  // namespace

void data_changed(Inode& inode, uint64_t now_ns) {
  written_by_map(inode, now_ns);
  drop_set_id(inode.attributes);
}

void written_by_map(Inode& inode, uint64_t now_ns) {
  inode.attributes.mtime_ns = now_ns;
  inode.attributes.ctime_ns = now_ns;
}

Task<SharedGuard> FileCalls::lock(Ino ino) {
  co_return std::make_shared<InodeLocks::Guard>(co_await core_.data_locks.exclusive(ino));
}

Task<PosixResult<Attributes>> FileCalls::open(Caller caller, Ino ino, int flags, OpenOwner owner) {
  const OpenFiles::Opening opening(core_.opens, owner);
  SharedGuard guard = co_await lock(ino);
  if (core_.deleting.contains(ino)) co_return PosixError(ESTALE);
  PMSTORE_CO_TRY_STATUS(core_.check_settled(ino));
  PMSTORE_CO_TRY(const Inode inode, co_await core_.inode(ino));
  const bool is_orphan = inode.attributes.links == 0;
  if (is_orphan && !core_.opens.is_open(ino) && !core_.in_grace) co_return PosixError(ESTALE);
  PMSTORE_CO_TRY_STATUS(check_open(caller, inode, flags));
  if (!core_.opens.add(ino, owner)) {
    co_return PosixError(ENFILE, "as many files are open as can be");
  }
  if ((flags & O_TRUNC) == 0 || !inode.is_regular()) co_return inode.attributes;
  const uint64_t now_ns = core_.now_ns();
  const Change change = [now_ns](Inode& truncated) { data_changed(truncated, now_ns); };
  PosixResult<Attributes> truncated = co_await set_size(std::move(guard), inode, 0, change);
  if (!truncated) {
    core_.opens.remove(ino, owner);
    if (is_orphan) core_.delete_unless_open(ino);
  }
  co_return std::move(truncated);
}

Task<PosixStatus> FileCalls::close(Ino ino, OpenOwner owner) {
  if (!core_.opens.remove(ino, owner)) {
    co_return PosixError(EBADF, "the file is not open");
  }
  if (core_.opens.is_open(ino)) co_return PosixStatus();
  // An inode that is gone already, or that an error hides, is left to the next start.
  const PosixResult<Inode> inode = co_await core_.inode(ino);
  if (inode && inode->attributes.links == 0) core_.delete_unless_open(ino);
  co_return PosixStatus();
}

Task<void> FileCalls::forget(OpenOwner owner) {
  // What is added behind this would stay for ever.
  co_await core_.opens.opens_have_ended(owner);
  core_.reservations.take_back_all_of(owner);
  const std::vector<Ino> closed = core_.opens.remove_all(owner);
  for (const Ino ino : closed) {
    const PosixResult<Inode> inode = co_await core_.inode(ino);
    if (inode && inode->attributes.links == 0) core_.delete_unless_open(ino);
  }
}

Task<PosixResult<Attributes>> FileCalls::change_inode(SharedGuard guard, Ino ino, Change change) {
  PMSTORE_CHECK(guard->holds(), "data is changed under the lock of its inode");
  const auto body = [&](NamespaceTransaction& transaction) -> Task<PosixResult<Attributes>> {
    PMSTORE_CO_TRY(Inode inode, co_await transaction.inode(ino));
    change(inode);
    ++inode.attributes.version;
    transaction.put(inode);
    co_return std::move(inode.attributes);
  };
  co_return co_await core_.transact<Attributes>(body);
}

Task<PosixResult<Attributes>> FileCalls::publish(SharedGuard guard, Ino ino, Publish publish) {
  const uint64_t now_ns = core_.now_ns();
  const Change change = [publish = std::move(publish), now_ns](Inode& inode) {
    Attributes& a = inode.attributes;
    PMSTORE_CHECK(!publish.tail || (a.is_inline && publish.tail->size() >= a.size),
                  "inline data grows in a file that is inline");
    a.size = std::max(a.size, publish.size);
    if (publish.tail) inode.tail = *publish.tail;
    if (publish.leaves_inline) {
      a.is_inline = false;
      inode.tail.clear();
    }
    if (!publish.keeps_times) data_changed(inode, now_ns);
  };
  co_return co_await change_inode(std::move(guard), ino, change);
}

Task<PosixStatus> FileCalls::touch(Ino ino, Touch touch) {
  SharedGuard guard = co_await lock(ino);
  PMSTORE_CO_TRY(const Inode inode, co_await core_.inode(ino));
  touch.written &= inode.is_regular();
  const uint64_t now_ns = core_.now_ns();
  const uint64_t read_ns = now_ns - std::min(now_ns, touch.read_age_ns);
  if (!touch.written && !(touch.read && is_atime_due(inode.attributes, read_ns))) {
    co_return PosixStatus();
  }
  const Change change = [touch, now_ns, read_ns](Inode& touched) {
    if (touch.written) written_by_map(touched, now_ns);
    Attributes& a = touched.attributes;
    if (touch.read && is_atime_due(a, read_ns)) a.atime_ns = read_ns;
  };
  const auto done = co_await change_inode(std::move(guard), ino, change);
  if (!done) co_return done.error();
  co_return PosixStatus();
}

Task<PosixStatus> FileCalls::write_data(Ino ino, uint64_t offset,
                                        std::span<const std::byte> bytes) {
  const uint64_t end = offset + bytes.size();
  PMSTORE_CO_TRY(const std::vector<Piece> pieces,
                 co_await maps_.pieces(ino, offset, end, FileMaps::kMostPieces));
  uint64_t at = offset;
  for (const Piece& piece : pieces) {
    PMSTORE_CHECK(piece.file_offset <= at, "what is written has extents");
    const AreaRange part = part_of(piece, at, end);
    PMSTORE_CO_TRY_STATUS(
        co_await core_.space().write(part, bytes.subspan(at - offset, part.bytes)));
    at += part.bytes;
  }
  PMSTORE_CHECK(at == end, "what is written has extents");
  co_return PosixStatus();
}

Task<PosixStatus> FileCalls::read_data(Ino ino, uint64_t offset, std::span<std::byte> into) {
  std::fill(into.begin(), into.end(), std::byte{0});
  const uint64_t end = offset + into.size();
  PMSTORE_CO_TRY(const std::vector<Piece> pieces,
                 co_await maps_.pieces(ino, offset, end, FileMaps::kMostPieces));
  for (const Piece& piece : pieces) {
    const AreaRange part = part_of(piece, offset, end);
    const uint64_t at = std::max(piece.file_offset, offset) - offset;
    PMSTORE_CO_TRY_STATUS(co_await core_.space().read(part, into.subspan(at, part.bytes)));
  }
  co_return PosixStatus();
}

Task<PosixStatus> FileCalls::make_room(SharedGuard guard, const Inode& inode, uint64_t from,
                                       uint64_t to) {
  const Ino ino = inode.attributes.ino;
  const uint64_t size = inode.attributes.size;
  const bool grows = to > size;
  if (grows) {
    // Before units are given: those are zero.
    PMSTORE_CO_TRY_STATUS(co_await maps_.zero(ino, size, std::max(size, from)));
  }
  const bool moves = inode.attributes.is_inline && size > 0;
  const auto first_unit = std::make_shared<std::vector<Piece>>();
  if (moves) {
    auto first = maps_.give(guard, ino, 0, kUnitBytes, false, first_unit);
    PMSTORE_CO_TRY_STATUS(co_await core_.tasks.run(std::move(first)));
  }
  // A file that is written from its end on will go on so.
  const bool appends = grows && from <= size;
  const auto given = std::make_shared<std::vector<Piece>>();
  auto gives = maps_.give(guard, ino, unit_down(from), unit_up(to), appends, given);
  const PosixStatus done = co_await core_.tasks.run(std::move(gives));
  if (!done) {
    co_await take_back(std::move(guard), ino, first_unit);
    co_return done.error();
  }
  if (moves) {
    const auto* tail = reinterpret_cast<const std::byte*>(inode.tail.data());
    PMSTORE_CO_TRY_STATUS(co_await write_data(ino, 0, {tail, inode.tail.size()}));
  }
  co_return PosixStatus();
}

Task<void> FileCalls::take_back(SharedGuard guard, Ino ino, FileMaps::Given given) {
  const auto work = [](FileMaps& maps, SharedGuard held, Ino of,
                       FileMaps::Given what) -> Task<bool> {
    co_await maps.take_back(std::move(held), of, std::move(what));
    co_return true;
  };
  co_await core_.tasks.run(work(maps_, std::move(guard), ino, std::move(given)));
}

Task<PosixResult<Attributes>> FileCalls::replace(SharedGuard guard, Ino ino, uint64_t offset,
                                                 std::span<const std::byte> bytes) {
  const uint64_t end = offset + bytes.size();
  const uint64_t now_ns = core_.now_ns();
  const Change change = [end, now_ns](Inode& inode) {
    inode.attributes.size = std::max(inode.attributes.size, end);
    data_changed(inode, now_ns);
  };
  // A copy: it goes on to its end when the caller is gone.
  std::vector<std::byte> copy(bytes.begin(), bytes.end());
  auto replaces = maps_.replace(std::move(guard), ino, offset, std::move(copy), change);
  co_return co_await core_.tasks.run(std::move(replaces));
}

Task<PosixResult<Namespace::Written>> FileCalls::write(Ino ino, std::optional<uint64_t> offset,
                                                       std::span<const std::byte> bytes,
                                                       bool atomic) {
  if (bytes.size() > kMaxMessageData)
    co_return PosixError(EINVAL, "at most 1 MiB is written at once");
  SharedGuard guard = co_await lock(ino);
  PMSTORE_CO_TRY(const Inode inode, co_await core_.file(ino));
  const Attributes& a = inode.attributes;
  const uint64_t at = offset.value_or(a.size);
  if (bytes.empty()) co_return Namespace::Written{a, at};
  if (at >= kMaxFileBytes || kMaxFileBytes - at < bytes.size()) co_return PosixError(EFBIG);
  const uint64_t end = at + bytes.size();
  // What lies in the inode changes with it; what is behind the size is not seen before that grows.
  if (atomic && !a.is_inline && at < a.size) {
    PMSTORE_CO_TRY(Attributes after, co_await replace(std::move(guard), ino, at, bytes));
    co_return Namespace::Written{std::move(after), at};
  }
  Publish what{.size = end};
  if (a.is_inline && end <= kMaxInlineBytes) {
    what.tail = inode.tail;
    if (what.tail->size() < end) what.tail->resize(end);
    if (!bytes.empty()) std::memcpy(what.tail->data() + at, bytes.data(), bytes.size());
  } else {
    PMSTORE_CO_TRY_STATUS(co_await make_room(guard, inode, at, end));
    PMSTORE_CO_TRY_STATUS(co_await write_data(ino, at, bytes));
    what.leaves_inline = a.is_inline;
  }
  auto last = publish(std::move(guard), ino, std::move(what));
  PMSTORE_CO_TRY(Attributes after, co_await core_.tasks.run(std::move(last)));
  co_return Namespace::Written{std::move(after), at};
}

Task<PosixResult<std::vector<std::byte>>> FileCalls::read(Ino ino, uint64_t offset,
                                                          uint64_t bytes) {
  if (bytes > kMaxMessageData) co_return PosixError(EINVAL, "at most 1 MiB is read at once");
  const InodeLocks::Guard guard = co_await core_.data_locks.shared(ino);
  PMSTORE_CO_TRY(const Inode inode, co_await core_.file(ino));
  const Attributes& a = inode.attributes;
  std::vector<std::byte> data;
  if (offset >= a.size) co_return std::move(data);
  data.resize(std::min(bytes, a.size - offset));
  if (a.is_inline) {
    if (!data.empty()) std::memcpy(data.data(), inode.tail.data() + offset, data.size());
  } else if (!data.empty()) {
    PMSTORE_CO_TRY_STATUS(co_await read_data(ino, offset, data));
  }
  co_return std::move(data);
}

Task<PosixStatus> FileCalls::leave_inline(SharedGuard guard, const Inode& inode) {
  const Ino ino = inode.attributes.ino;
  PMSTORE_CO_TRY_STATUS(co_await make_room(guard, inode, 0, inode.attributes.size));
  auto last = publish(std::move(guard), ino, {.leaves_inline = true, .keeps_times = true});
  const auto done = co_await core_.tasks.run(std::move(last));
  if (!done) co_return done.error();
  co_return PosixStatus();
}

Task<PosixStatus> FileCalls::allocate_for_map(Ino ino, uint64_t offset, uint64_t bytes) {
  SharedGuard guard = co_await lock(ino);
  PMSTORE_CO_TRY(const Inode inode, co_await core_.file(ino));
  const uint64_t size = inode.attributes.size;
  if (inode.attributes.is_inline && size > 0) {
    co_return co_await leave_inline(std::move(guard), inode);
  }
  // More is asked for by the next call.
  const uint64_t end = offset + std::min({bytes, kMaxFileBytes - offset, kMaxExtentBytes});
  const uint64_t from = unit_down(offset);
  const uint64_t to = std::min(unit_up(end), unit_up(size));
  if (from >= to) co_return PosixStatus();
  auto gives =
      maps_.give(std::move(guard), ino, from, to, false, std::make_shared<std::vector<Piece>>());
  co_return co_await core_.tasks.run(std::move(gives));
}

Task<PosixResult<Namespace::Mapped>> FileCalls::map(Ino ino, uint64_t offset, uint64_t bytes,
                                                    bool allocate) {
  if (offset > kMaxFileBytes) co_return PosixError(EINVAL, "no file has such an offset");
  if (allocate) {
    PMSTORE_CO_TRY_STATUS(co_await allocate_for_map(ino, offset, bytes));
  }
  const InodeLocks::Guard guard = co_await core_.data_locks.shared(ino);
  PMSTORE_CO_TRY(Inode inode, co_await core_.file(ino));
  Namespace::Mapped mapped;
  mapped.attributes = inode.attributes;
  const uint64_t to = offset + std::min(bytes, kMaxFileBytes - offset);
  if (inode.attributes.is_inline) {
    mapped.map.from = offset;
    mapped.map.to = to;
    co_return std::move(mapped);
  }
  PMSTORE_CO_TRY_STATUS(co_await map_into(mapped, ino, offset, to));
  co_return std::move(mapped);
}

}  // namespace pmstore::fs::internal
