// Of FileMaps: bytes that take the place of others as a whole.
//
// The order is that of a move: the new units are recorded as freed before anything is written to
// them, so a crash leaves them in quarantine; the words of the old ones change before what they
// keep is read, so no write of a client that goes there is acknowledged from then on; what is
// written is durable before the one transaction that gives the file the new units. Until then a
// map has the old ones, all of them.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "base/check.h"
#include "fs/internal/file_maps.h"

namespace pmstore::fs::internal {

struct FileMaps::Replaced {
  explicit Replaced(ReclaimQueue& queue) : held(queue) {}
  uint64_t from = 0;  // the units that are replaced, in the file
  uint64_t to = 0;
  uint64_t size = 0;       // of the file, before
  std::vector<Piece> old;  // the extents that touch them, as they are
  std::vector<Piece> made;
  std::vector<uint64_t> made_ids;  // among the freed ranges, until they are the file's
  // What the file gives up, when it has done so.
  std::vector<std::pair<uint64_t, AreaRange>> freed;
  Attributes after;
  ReclaimQueue::Held held;
};

Task<PosixStatus> FileMaps::allocate_new(Ino ino, Replaced& replaced) {
  const uint64_t until_ns = patience_ends_ns();
  while (true) {
    PosixResult<std::vector<Piece>> made =
        allocate_missing({}, ino, replaced.from, replaced.to, replaced.to);
    if (made) {
      replaced.made = std::move(*made);
      break;
    }
    if (made.number() != ENOSPC) co_return PosixError(made.error());
    const bool may_fit = co_await more_is_free(Lack::kUnits, until_ns);
    if (!may_fit) co_return no_room(made.error());
  }
  PMSTORE_CHECK(replaced.made.front().file_offset == replaced.from &&
                    replaced.made.back().end() == replaced.to,
                "each unit that is replaced has a new one");
  for (size_t i = 0; i < replaced.made.size(); ++i) {
    replaced.made_ids.push_back(core_.next_freed_id++);
    replaced.held.hold(replaced.made_ids.back());
  }
  co_return PosixStatus();
}

Task<PosixStatus> FileMaps::record_new_places(Replaced& replaced) {
  const auto body = [&](NamespaceTransaction& transaction) -> Task<PosixStatus> {
    for (size_t i = 0; i < replaced.made.size(); ++i) {
      transaction.put_freed(replaced.made_ids[i], replaced.made[i].place);
    }
    co_return PosixStatus();
  };
  PosixStatus done = co_await core_.check_reserve();
  if (done) {
    NamespaceCore::Doubt doubt;
    done = co_await core_.transact<void>(body, &doubt);
    if (!done && doubt) {
      const Fate fate = co_await fate_of_freeing(*doubt, replaced.made_ids.front());
      // What may be recorded stays allocated; the next start knows.
      if (fate == Fate::kNeverKnown) {
        replaced.held.keep();
        co_return done;
      }
      if (fate == Fate::kCommitted) done = PosixStatus();
    }
  }
  if (!done) {
    give_back(replaced.made);
    co_return done;
  }
  for (const Piece& piece : replaced.made) core_.quarantined_bytes += piece.place.bytes;
  co_return done;
}

Task<PosixStatus> FileMaps::fill_new_places(const Replaced& replaced, uint64_t offset,
                                            std::span<const std::byte> bytes) {
  const uint64_t end = offset + bytes.size();
  const uint64_t kept_to = std::max(end, std::min(replaced.size, replaced.to));
  // What no extent covers, and what lies behind the size, reads as zeros.
  std::vector<std::byte> content(kept_to - replaced.from);
  const std::pair<uint64_t, uint64_t> edges[] = {{replaced.from, offset}, {end, kept_to}};
  for (const auto& [from, to] : edges) {
    for (const Piece& piece : replaced.old) {
      if (from == to || piece.end() <= from || piece.file_offset >= to) continue;
      const AreaRange part = part_of(piece, from, to);
      const uint64_t at = std::max(piece.file_offset, from) - replaced.from;
      const std::span<std::byte> into = std::span(content).subspan(at, part.bytes);
      PMSTORE_CO_TRY_STATUS(co_await core_.space().read(part, into));
    }
  }
  std::memcpy(content.data() + (offset - replaced.from), bytes.data(), bytes.size());
  for (const Piece& piece : replaced.made) {
    const AreaRange part = part_of(piece, replaced.from, kept_to);
    const std::span<const std::byte> from =
        std::span(content).subspan(piece.file_offset - replaced.from, part.bytes);
    PMSTORE_CO_TRY_STATUS(co_await core_.space().write(part, from));
  }
  co_return PosixStatus();
}

Task<PosixStatus> FileMaps::switch_in(NamespaceTransaction& transaction, Ino ino,
                                      const WithFirst& change, Replaced& replaced) {
  PMSTORE_CO_TRY(Inode inode, co_await transaction.inode(ino));
  for (const Piece& piece : replaced.old) {
    if (piece.file_offset < replaced.from) {
      transaction.put_piece(ino, {piece.file_offset, part_of(piece, 0, replaced.from)});
    } else {
      transaction.erase_piece(ino, piece.file_offset);
    }
    if (piece.end() > replaced.to) {
      transaction.put_piece(ino, {replaced.to, part_of(piece, replaced.to, piece.end())});
    }
  }
  for (const auto& [id, range] : replaced.freed) {
    transaction.put_freed(id, range);
    inode.attributes.data_bytes -= range.bytes;
  }
  for (size_t i = 0; i < replaced.made.size(); ++i) {
    transaction.erase_freed(replaced.made_ids[i]);
    transaction.put_piece(ino, replaced.made[i]);
    inode.attributes.data_bytes += replaced.made[i].place.bytes;
  }
  change(inode);
  ++inode.attributes.version;
  transaction.put(inode);
  replaced.after = inode.attributes;
  co_return PosixStatus();
}

// Success: the file has the new units. An error: it has the old ones, or is closed for good.
Task<PosixStatus> FileMaps::switch_places(Ino ino, const WithFirst& change, Replaced& replaced) {
  for (const Piece& piece : replaced.old) {
    const uint64_t id = core_.next_freed_id++;
    replaced.held.hold(id);
    replaced.freed.emplace_back(id, part_of(piece, replaced.from, replaced.to));
  }
  const auto body = [&](NamespaceTransaction& transaction) {
    return switch_in(transaction, ino, change, replaced);
  };
  NamespaceCore::Doubt doubt;
  PosixStatus done = co_await core_.transact<void>(body, &doubt);
  if (done || !doubt) co_return done;
  // The file stays locked until it is known.
  const Fate fate = co_await fate_of_erasing(*doubt, replaced.made_ids.front());
  if (fate == Fate::kNeverKnown) close_for_good(ino);
  if (fate == Fate::kCommitted) co_return PosixStatus();
  co_return done;
}

Task<PosixResult<Attributes>> FileMaps::replace(SharedGuard guard, Ino ino, uint64_t offset,
                                                std::vector<std::byte> bytes, WithFirst change) {
  PMSTORE_CHECK(guard->holds(), "a map is changed under the lock of its inode");
  PMSTORE_CHECK(!bytes.empty() && bytes.size() <= kMaxMessageData, "a replacement has its bound");
  PMSTORE_CO_TRY(const Inode inode, co_await core_.inode(ino));
  PMSTORE_CHECK(!inode.attributes.is_inline && offset < inode.attributes.size,
                "what is replaced lies in units, below the size");
  core_.reservations.take_back(ino);
  const uint64_t end = offset + bytes.size();
  Replaced replaced(core_.queue);
  replaced.from = unit_down(offset);
  replaced.to = unit_up(end);
  replaced.size = inode.attributes.size;
  PMSTORE_CO_TRY(replaced.old, co_await pieces(ino, replaced.from, replaced.to, kMostPieces));
  PMSTORE_CO_TRY_STATUS(co_await allocate_new(ino, replaced));
  PMSTORE_CO_TRY_STATUS(co_await record_new_places(replaced));
  PosixStatus done = co_await change_words(ino, replaced.from, replaced.to);
  if (done) done = co_await fill_new_places(replaced, offset, bytes);
  if (done) done = co_await switch_places(ino, change, replaced);
  core_.map_has_changed(ino);
  if (!core_.check_settled(ino)) {  // neither place is freed
    replaced.held.keep();
    co_return done.error();
  }
  std::vector<std::pair<uint64_t, AreaRange>> given_up;
  if (done) {
    for (const Piece& piece : replaced.made) core_.quarantined_bytes -= piece.place.bytes;
    given_up = replaced.freed;
    for (const auto& [id, range] : given_up) core_.quarantined_bytes += range.bytes;
    for (const auto& [id, range] : given_up) core_.space().retire(range);
  } else {
    for (size_t i = 0; i < replaced.made.size(); ++i) {
      given_up.emplace_back(replaced.made_ids[i], replaced.made[i].place);
    }
  }
  replaced.held.drop();
  for (const auto& [id, range] : given_up) {
    core_.queue.add({ReclaimQueue::Kind::kFreed, id, range});
  }
  if (!done) co_return done.error();
  co_return std::move(replaced.after);
}

}  // namespace pmstore::fs::internal
