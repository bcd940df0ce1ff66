// Of FileMaps: an extent that gets another place, because its data server is drained.
//
// The new place is recorded as freed before anything is written to it: a crash leaves it in
// quarantine. The words of the old one change before it is read: no write that a client has sent
// there is acknowledged from then on, and none gets a map before the lock is released.
#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "fs/internal/file_maps.h"

namespace pmstore::fs::internal {
namespace {

// So much is moved by one pair of transactions, and copied through memory at a time.
constexpr uint64_t kMostMoved = uint64_t{1} << 20;

AreaRange first_of(const AreaRange& place, uint64_t bytes) {
  return {place.server, place.offset, bytes};
}

}  // namespace

struct FileMaps::Moved {
  explicit Moved(ReclaimQueue& queue) : held(queue) {}
  Piece old;  // the extent as it was
  AreaRange from;
  AreaRange to;
  uint64_t from_id = 0;  // of the old place among the freed ranges
  uint64_t to_id = 0;    // of the new one, until it is the file's
  ReclaimQueue::Held held;
};

Task<PosixStatus> FileMaps::record_new_place(Moved& moved) {
  const auto body = [&](NamespaceTransaction& transaction) -> Task<PosixStatus> {
    transaction.put_freed(moved.to_id, moved.to);
    co_return PosixStatus();
  };
  NamespaceCore::Doubt doubt;
  PosixStatus done = co_await core_.transact<void>(body, &doubt);
  if (!done && doubt) {
    const Fate fate = co_await fate_of_freeing(*doubt, moved.to_id);
    // What may be recorded stays allocated; the next start knows.
    if (fate == Fate::kNeverKnown) {
      moved.held.keep();
      co_return done;
    }
    if (fate == Fate::kCommitted) done = PosixStatus();
  }
  if (done) {
    core_.quarantined_bytes += moved.to.bytes;
  } else {
    core_.space().give_back(moved.to);
  }
  co_return done;
}

Task<PosixStatus> FileMaps::copy(const Moved& moved) {
  std::vector<std::byte> bytes(moved.to.bytes);
  PMSTORE_CO_TRY_STATUS(co_await core_.space().read(moved.from, bytes));
  PMSTORE_CO_TRY_STATUS(co_await core_.space().write(moved.to, bytes));
  co_return PosixStatus();
}

// Success: the file has the new place. An error: it has the old one, or is closed for good.
Task<PosixStatus> FileMaps::change_place(Ino ino, const Moved& moved) {
  const auto body = [&](NamespaceTransaction& transaction) -> Task<PosixStatus> {
    PMSTORE_CO_TRY(Inode inode, co_await transaction.inode(ino));
    const uint64_t at = moved.old.file_offset;
    transaction.erase_freed(moved.to_id);
    transaction.put_freed(moved.from_id, moved.from);
    transaction.put_piece(ino, {at, moved.to});
    if (moved.from.bytes < moved.old.place.bytes) {
      const uint64_t rest = at + moved.from.bytes;
      transaction.put_piece(ino, {rest, part_of(moved.old, rest, moved.old.end())});
    }
    ++inode.attributes.version;
    transaction.put(inode);
    co_return PosixStatus();
  };
  NamespaceCore::Doubt doubt;
  PosixStatus done = co_await core_.transact<void>(body, &doubt);
  if (done || !doubt) co_return done;
  // The file stays locked until it is known.
  const Fate fate = co_await fate_of_freeing(*doubt, moved.from_id);
  if (fate == Fate::kNeverKnown) close_for_good(ino);
  if (fate == Fate::kCommitted) co_return PosixStatus();
  co_return done;
}

Task<PosixResult<uint64_t>> FileMaps::move(SharedGuard guard, Ino ino, uint64_t file_offset,
                                           uint16_t server) {
  PMSTORE_CHECK(guard->holds(), "a map is changed under the lock of its inode");
  PMSTORE_CO_TRY(const std::vector<Piece> there,
                 co_await pieces(ino, file_offset, file_offset + 1, 1));
  if (there.empty() || there.front().file_offset != file_offset ||
      there.front().place.server != server) {
    co_return uint64_t{0};
  }
  core_.reservations.take_back(ino);
  Moved moved(core_.queue);
  moved.old = there.front();
  const uint64_t most = std::min(moved.old.place.bytes, kMostMoved);
  Result<AreaRange> place = allocate(ino, file_offset, most);
  if (!place && place.code() == ErrorCode::kFull) {
    const Status grown = co_await core_.space().make_room();
    if (grown) place = allocate(ino, file_offset, most);
  }
  if (!place) co_return no_room(PosixError(std::move(place.error())));
  if (place->server == server) {  // it takes new data again
    core_.space().give_back(*place);
    co_return uint64_t{0};
  }
  moved.to = *place;
  moved.from = first_of(moved.old.place, moved.to.bytes);
  moved.from_id = core_.next_freed_id++;
  moved.to_id = core_.next_freed_id++;
  moved.held.hold(moved.from_id);
  moved.held.hold(moved.to_id);
  PMSTORE_CO_TRY_STATUS(co_await record_new_place(moved));
  std::vector<AreaRange> changed{moved.old.place};
  const Status told = co_await core_.space().change_generations(std::move(changed));
  PosixStatus done;
  if (!told) done = PosixError(told.error());
  if (done) done = co_await copy(moved);
  if (done) done = co_await change_place(ino, moved);
  core_.map_has_changed(ino);
  if (!core_.check_settled(ino)) {  // neither place is freed
    moved.held.keep();
    co_return done.error();
  }
  // As many bytes are in quarantine as before: the old place for the new one.
  if (done) core_.space().retire(moved.from);
  const uint64_t freed_id = done ? moved.from_id : moved.to_id;
  const AreaRange freed = done ? moved.from : moved.to;
  moved.held.drop();
  core_.queue.add({ReclaimQueue::Kind::kFreed, freed_id, freed});
  if (!done) co_return done.error();
  co_return moved.to.bytes;
}

}  // namespace pmstore::fs::internal
