// FileCalls: sizes and room: truncate, allocate, punch, zero.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "fs/internal/file_calls.h"
#include "fs/internal/permissions.h"

namespace pmstore::fs::internal {

Task<PosixResult<Attributes>> FileCalls::shrink(SharedGuard guard, Inode inode, uint64_t size,
                                                Change change) {
  const Ino ino = inode.attributes.ino;
  const Change shrinks = [size, change = std::move(change)](Inode& shrunk) {
    shrunk.attributes.size = size;
    // An empty file begins anew in its inode. Extents that a later transaction frees may be behind
    // it for a while.
    if (size == 0) shrunk.attributes.is_inline = true;
    if (shrunk.attributes.is_inline) shrunk.tail.resize(size);
    change(shrunk);
  };
  // An allocation that has failed may have left extents behind inline data.
  if (inode.attributes.is_inline && inode.attributes.data_bytes == 0) {
    auto shrunk = change_inode(std::move(guard), ino, shrinks);
    co_return co_await core_.tasks.run(std::move(shrunk));
  }
  auto taken = maps_.take(std::move(guard), ino, size, kMaxFileBytes, shrinks);
  co_return co_await core_.tasks.run(std::move(taken));
}

Task<PosixResult<Attributes>> FileCalls::grow(SharedGuard guard, Inode inode, uint64_t size,
                                              Change change) {
  const Attributes& a = inode.attributes;
  const bool stays_inline = a.is_inline && size <= kMaxInlineBytes;
  if (!stays_inline) {
    PMSTORE_CO_TRY_STATUS(co_await maps_.zero(a.ino, a.size, size));
    if (a.is_inline && a.size > 0) {
      PMSTORE_CO_TRY_STATUS(co_await make_room(guard, inode, 0, a.size));
    }
  }
  const Change grows = [size, stays_inline, change = std::move(change)](Inode& grown) {
    grown.attributes.size = size;
    grown.attributes.is_inline = stays_inline;
    grown.tail.resize(stays_inline ? size : 0);
    change(grown);
  };
  auto grown = change_inode(std::move(guard), a.ino, grows);
  co_return co_await core_.tasks.run(std::move(grown));
}

Task<PosixResult<Attributes>> FileCalls::set_size(SharedGuard guard, Inode inode, uint64_t size,
                                                  Change change) {
  if (size > kMaxFileBytes) co_return PosixError(EFBIG);
  // Room behind the size goes, too, when the size stays.
  const bool stays = size == inode.attributes.size;
  if (size < inode.attributes.size || (stays && inode.attributes.data_bytes > 0)) {
    co_return co_await shrink(std::move(guard), std::move(inode), size, std::move(change));
  }
  if (size > inode.attributes.size) {
    co_return co_await grow(std::move(guard), std::move(inode), size, std::move(change));
  }
  auto changed = change_inode(std::move(guard), inode.attributes.ino, std::move(change));
  co_return co_await core_.tasks.run(std::move(changed));
}

Task<PosixResult<SharedGuard>> FileCalls::may_set_id(Caller caller, Ino ino,
                                                     AttributeChange change) {
  if (!sets_set_id(change)) co_return SharedGuard();
  PMSTORE_CO_TRY(Inode inode, co_await core_.inode(ino));
  if (!inode.is_regular()) co_return SharedGuard();
  SharedGuard guard = co_await lock(ino);
  PMSTORE_CO_TRY(inode, co_await core_.file(ino));
  PMSTORE_CO_TRY_STATUS(apply_change(caller, change, core_.now_ns(), inode.attributes));
  PMSTORE_CO_TRY_STATUS(co_await maps_.end_maps(guard, ino));
  co_return std::move(guard);
}

Task<PosixResult<Attributes>> FileCalls::change_size(Caller caller, Ino ino,
                                                     AttributeChange change) {
  SharedGuard guard = co_await lock(ino);
  PMSTORE_CO_TRY(Inode inode, co_await core_.file(ino));
  PMSTORE_CO_TRY_STATUS(check_access(caller, inode.attributes, W_OK));
  const uint64_t now_ns = core_.now_ns();
  // The rules are asked here; what another call changes before the transaction does not undo them.
  Attributes tried = inode.attributes;
  PMSTORE_CO_TRY_STATUS(apply_change(caller, change, now_ns, tried));
  if (sets_set_id(change)) {
    PMSTORE_CO_TRY_STATUS(co_await maps_.end_maps(guard, ino));
  }
  const Change changes = [caller, change, now_ns](Inode& changed) {
    data_changed(changed, now_ns);
    [[maybe_unused]] const PosixStatus applied =
        apply_change(caller, change, now_ns, changed.attributes);
  };
  co_return co_await set_size(std::move(guard), std::move(inode), change.size, changes);
}

Task<PosixResult<Attributes>> FileCalls::punch(SharedGuard guard, const Inode& inode, uint64_t from,
                                               uint64_t to) {
  const Attributes& a = inode.attributes;
  const uint64_t now_ns = core_.now_ns();
  // Behind the size nothing is kept: the unit in which the file ends may go as a whole, too.
  const uint64_t freed_to = to >= a.size ? std::max(unit_up(to), unit_up(a.size)) : unit_down(to);
  const uint64_t freed_from = std::min(unit_up(from), freed_to);
  const uint64_t first_edge = std::min(std::min(to, a.size), freed_from);
  PMSTORE_CO_TRY_STATUS(co_await maps_.zero(a.ino, from, first_edge));
  PMSTORE_CO_TRY_STATUS(co_await maps_.zero(a.ino, std::max(from, freed_to), to));
  const Change punched = [now_ns](Inode& changed) { data_changed(changed, now_ns); };
  auto taken = maps_.take(std::move(guard), a.ino, freed_from, freed_to, punched);
  co_return co_await core_.tasks.run(std::move(taken));
}

// A range of an inline file, all of which stays inline.
Task<PosixResult<Attributes>> FileCalls::allocate_inline(SharedGuard guard, const Inode& inode,
                                                         AllocateMode mode, uint64_t from,
                                                         uint64_t to) {
  const uint64_t now_ns = core_.now_ns();
  const Change changes = [mode, from, to, now_ns](Inode& changed) {
    const bool zeroes = mode == AllocateMode::kPunchHole || mode == AllocateMode::kZeroRange;
    const uint64_t size = changed.tail.size();
    if (zeroes && from < size) {
      std::fill_n(changed.tail.begin() + static_cast<ptrdiff_t>(from), std::min(to, size) - from,
                  '\0');
    }
    const bool grows = mode == AllocateMode::kExtend || mode == AllocateMode::kZeroRange;
    if (grows && to > size) {
      changed.tail.resize(to);
      changed.attributes.size = to;
    }
    data_changed(changed, now_ns);
  };
  auto changed = change_inode(std::move(guard), inode.attributes.ino, changes);
  co_return co_await core_.tasks.run(std::move(changed));
}

Task<PosixStatus> FileCalls::fill_room(SharedGuard guard, Inode inode, AllocateMode mode,
                                       uint64_t from, uint64_t to, FileMaps::Given given) {
  const Ino ino = inode.attributes.ino;
  const uint64_t size = inode.attributes.size;
  if (mode == AllocateMode::kZeroRange) {
    PMSTORE_CO_TRY_STATUS(co_await maps_.zero(ino, from, to, given));
    // Inline data is written behind that.
    if (from < inode.tail.size()) inode.tail.replace(from, inode.tail.npos, size - from, '\0');
  }
  // What lies between the old and the new size becomes visible.
  if (mode != AllocateMode::kKeepSize && to > size) {
    PMSTORE_CO_TRY_STATUS(co_await maps_.zero(ino, size, to, given));
  }
  if (inode.attributes.is_inline && size > 0) {
    co_return co_await make_room(std::move(guard), inode, 0, size);
  }
  co_return PosixStatus();
}

Task<PosixResult<Attributes>> FileCalls::allocate(Ino ino, AllocateMode mode, uint64_t offset,
                                                  uint64_t bytes) {
  if (bytes == 0) co_return PosixError(EINVAL, "a range has at least one byte");
  if (offset > kMaxFileBytes || kMaxFileBytes - offset < bytes) co_return PosixError(EFBIG);
  SharedGuard guard = co_await lock(ino);
  PMSTORE_CO_TRY(Inode inode, co_await core_.file(ino));
  const Attributes& a = inode.attributes;
  const uint64_t end = offset + bytes;
  const bool punches = mode == AllocateMode::kPunchHole;
  if (a.is_inline && (end <= kMaxInlineBytes || punches)) {
    co_return co_await allocate_inline(std::move(guard), inode, mode, offset, end);
  }
  if (punches) co_return co_await punch(std::move(guard), inode, offset, end);
  PMSTORE_CO_TRY_STATUS(co_await maps_.check_room(ino, unit_down(offset), unit_up(end)));
  const auto given = std::make_shared<std::vector<Piece>>();
  auto gives = maps_.give(guard, ino, unit_down(offset), unit_up(end), false, given);
  PMSTORE_CO_TRY_STATUS(co_await core_.tasks.run(std::move(gives)));
  const PosixStatus filled = co_await fill_room(guard, inode, mode, offset, end, given);
  if (!filled) {
    // Behind another error, what was given may have data.
    if (filled.number() == ENOSPC) co_await take_back(std::move(guard), ino, given);
    co_return filled.error();
  }
  const uint64_t size = a.size;
  const bool grows = mode != AllocateMode::kKeepSize && end > size;
  Publish what{.size = grows ? end : size, .leaves_inline = a.is_inline};
  auto last = publish(std::move(guard), ino, std::move(what));
  co_return co_await core_.tasks.run(std::move(last));
}

// ---- room that a client writes to before the size grows ----

Task<PosixStatus> FileCalls::map_into(Namespace::Mapped& mapped, Ino ino, uint64_t offset,
                                      uint64_t to) {
  mapped.map.from = offset;
  mapped.map.to = to;
  PMSTORE_CO_TRY(const std::vector<Piece> pieces,
                 co_await maps_.pieces(ino, offset, to, kMostMapped));
  for (const Piece& piece : pieces) {
    mapped.map.extents.push_back(
        {piece.file_offset, piece.place, core_.space().generation(piece.place)});
  }
  if (pieces.size() == kMostMapped) mapped.map.to = std::min(to, pieces.back().end());
  co_return PosixStatus();
}

Task<PosixResult<Namespace::Reserved>> FileCalls::reserve(Ino ino, uint64_t offset, uint64_t bytes,
                                                          OpenOwner owner) {
  if (offset > kMaxFileBytes || kMaxFileBytes - offset < bytes) co_return PosixError(EFBIG);
  SharedGuard guard = co_await lock(ino);
  PMSTORE_CO_TRY(const Inode inode, co_await core_.file(ino));
  const Attributes& a = inode.attributes;
  const uint64_t end = offset + bytes;
  const bool is_other = offset > a.size || end <= a.size || bytes > kMostReserved;
  if (is_other || (a.is_inline && a.size > 0)) {
    co_return PosixError(EINVAL, "room is reserved at the end of a file that is not inline");
  }
  PMSTORE_CO_TRY_STATUS(co_await make_room(guard, inode, offset, end));
  Namespace::Reserved reserved;
  PMSTORE_CO_TRY(const Inode after, co_await core_.inode(ino));
  reserved.mapped.attributes = after.attributes;
  PMSTORE_CO_TRY_STATUS(co_await map_into(reserved.mapped, ino, offset, end));
  reserved.reservation = core_.reservations.begin(owner, ino, offset, end);
  co_return std::move(reserved);
}

Task<PosixResult<Attributes>> FileCalls::publish_reserved(Ino ino, uint64_t reservation,
                                                          uint64_t size, OpenOwner owner) {
  SharedGuard guard = co_await lock(ino);
  PMSTORE_CO_TRY(const Inode inode, co_await core_.file(ino));
  const Attributes& a = inode.attributes;
  const bool is_as_it_was = core_.reservations.end(owner, ino, reservation, size);
  // Another client may have written a few bytes, into the inode.
  if (!is_as_it_was || (a.is_inline && a.size > 0)) {
    co_return PosixError(EAGAIN, "the reserved room was used otherwise");
  }
  Publish what{.size = size, .leaves_inline = a.is_inline};
  auto last = publish(std::move(guard), ino, std::move(what));
  co_return co_await core_.tasks.run(std::move(last));
}

}  // namespace pmstore::fs::internal
