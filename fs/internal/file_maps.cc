#include "fs/internal/file_maps.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <utility>

#include "base/check.h"

namespace pmstore::fs::internal {
namespace {

// How large the next extent of a file is that has so much already.
uint64_t growth_of(uint64_t data_bytes) {
  return std::clamp(std::bit_floor(std::max<uint64_t>(data_bytes / 8, 1)), kUnitBytes,
                    kMaxExtentBytes);
}

}  // namespace

AreaRange part_of(const Piece& piece, uint64_t from, uint64_t to) {
  const uint64_t first = std::max(from, piece.file_offset);
  const uint64_t last = std::min(to, piece.end());
  PMSTORE_CHECK(first < last, "a part of an extent is not empty");
  return {piece.place.server, piece.place.offset + (first - piece.file_offset), last - first};
}

Task<PosixResult<std::vector<Piece>>> FileMaps::pieces(Ino ino, uint64_t from, uint64_t to,
                                                       size_t most) {
  const auto body = [=](NamespaceTransaction& transaction) {
    return transaction.pieces(ino, from, to, most);
  };
  co_return co_await core_.look<std::vector<Piece>>(body);
}

Status FileMaps::check_space_known() const {
  if (!core_.space_is_unknown) return {};
  return make_error(ErrorCode::kDamaged,
                    "a wrong record hides which space is free, so none is given out; stop the "
                    "server and run `pmstore fs check --repair`");
}

// What is away may have room.
PosixError FileMaps::no_room(PosixError why) const {
  if (why.number != ENOSPC || !core_.space().takers_are_away()) return why;
  return PosixError(EIO, "a data server is away, and those that are there have no room");
}

// A file's stripes go to one server after the other. The first one is another one for the next
// file, and small files have one stripe.
Result<AreaRange> FileMaps::allocate(Ino ino, uint64_t at, uint64_t most) {
  PMSTORE_TRY_STATUS(check_space_known());
  DataSpace& space = core_.space();
  const uint16_t servers = space.takers();
  if (servers > 1) most = std::min(most, kStripeBytes - at % kStripeBytes);
  Result<AreaRange> place =
      make_error(ErrorCode::kFull, "no data server that takes new data is there");
  for (uint16_t i = 0; i < servers; ++i) {
    const uint16_t server = space.taker(raw(ino) + at / kStripeBytes + i);
    place = space.allocate(server, kUnitBytes, most);
    if (place || place.code() != ErrorCode::kFull) return place;
  }
  return place;
}

PosixStatus FileMaps::allocate_into(std::vector<Piece>& pieces, Ino ino, uint64_t from, uint64_t to,
                                    uint64_t most_to) {
  while (from < to && pieces.size() < kMostPieces) {
    const uint64_t most = std::min(most_to - from, kMaxExtentBytes);
    Result<AreaRange> place = allocate(ino, from, most);
    if (!place) return PosixError(std::move(place.error()));
    PMSTORE_CHECK(
        place->bytes >= kUnitBytes && place->bytes <= most && place->bytes % kUnitBytes == 0,
        "an extent has as many units as were asked for");
    pieces.push_back({from, *place});
    from += place->bytes;
  }
  return {};
}

void FileMaps::give_back(const std::vector<Piece>& pieces) {
  for (const Piece& piece : pieces) core_.space().give_back(piece.place);
}

// New extents for what of [from, to) has none, and the last one as far as `most_to`.
PosixResult<std::vector<Piece>> FileMaps::allocate_missing(const std::vector<Piece>& there, Ino ino,
                                                           uint64_t from, uint64_t to,
                                                           uint64_t most_to) {
  std::vector<Piece> made;
  uint64_t at = from;
  PosixStatus done;
  for (const Piece& piece : there) {
    if (done && at < piece.file_offset) {
      done = allocate_into(made, ino, at, piece.file_offset, piece.file_offset);
    }
    at = std::max(at, piece.end());
  }
  if (done && at < to) done = allocate_into(made, ino, at, to, std::max(to, most_to));
  if (!done) {
    give_back(made);
    return std::move(done.error());
  }
  return made;
}

Task<PosixStatus> FileMaps::give_some(Ino ino, uint64_t from, uint64_t to, uint64_t most_to,
                                      Step& step, Given given) {
  // One more, to see what follows the range.
  PMSTORE_CO_TRY(std::vector<Piece> there, co_await pieces(ino, from, most_to, kMostPieces));
  if (there.size() == kMostPieces) to = std::min(to, there.back().end());
  // Nothing grows into what is there.
  if (!there.empty() && there.back().end() > to) most_to = to;
  std::erase_if(there, [to](const Piece& piece) { return piece.file_offset >= to; });
  step.lack = Lack::kUnits;
  PMSTORE_CO_TRY(const std::vector<Piece> made, allocate_missing(there, ino, from, to, most_to));
  step.lack = Lack::kOther;
  // It stopped early when it had as many as one transaction takes.
  step.reached = made.size() >= kMostPieces ? std::min(to, made.back().end()) : to;
  if (made.empty()) co_return PosixStatus();
  if (PosixStatus reserved = co_await core_.check_reserve(); !reserved) {
    give_back(made);
    co_return std::move(reserved);
  }
  const auto body = [&](NamespaceTransaction& transaction) -> Task<PosixStatus> {
    PMSTORE_CO_TRY(Inode inode, co_await transaction.inode(ino));
    for (const Piece& piece : made) {
      transaction.put_piece(ino, piece);
      inode.attributes.data_bytes += piece.place.bytes;
    }
    ++inode.attributes.version;
    transaction.put(inode);
    co_return PosixStatus();
  };
  NamespaceCore::Doubt doubt;
  PosixStatus done = co_await core_.transact<void>(body, &doubt);
  // What may be mapped stays allocated; the next start knows.
  if (!done && !doubt) give_back(made);
  if (done) given->insert(given->end(), made.begin(), made.end());
  co_return std::move(done);
}

Task<PosixStatus> FileMaps::give(SharedGuard guard, Ino ino, uint64_t from, uint64_t to, bool grow,
                                 Given given) {
  PMSTORE_CHECK(guard->holds(), "a map is changed under the lock of its inode");
  PMSTORE_CHECK(from % kUnitBytes == 0 && to % kUnitBytes == 0, "units are mapped as a whole");
  PMSTORE_CHECK(given->empty(), "what an earlier step was given is not this one's");
  core_.reservations.take_back(ino);
  PosixStatus done = co_await give_all(ino, from, to, grow, given);
  if (!done) co_await take_back(std::move(guard), ino, given);
  co_return std::move(done);
}

Task<void> FileMaps::take_back(SharedGuard guard, Ino ino, Given given) {
  PMSTORE_CHECK(guard->holds(), "a map is changed under the lock of its inode");
  while (!given->empty()) {
    const size_t rest = given->size() - std::min(given->size(), kMostPieces);
    const std::vector<Piece> some(given->begin() + static_cast<ptrdiff_t>(rest), given->end());
    const auto body = [&](NamespaceTransaction& transaction) -> Task<PosixStatus> {
      PMSTORE_CO_TRY(Inode inode, co_await transaction.inode(ino));
      for (const Piece& piece : some) {
        transaction.erase_piece(ino, piece.file_offset);
        inode.attributes.data_bytes -= piece.place.bytes;
      }
      ++inode.attributes.version;
      transaction.put(inode);
      co_return PosixStatus();
    };
    const PosixStatus erased = co_await core_.take_away<void>(body);
    if (!erased) co_return;
    // Nobody had a map with them, and they are zero.
    give_back(some);
    given->resize(rest);
  }
}

Task<PosixStatus> FileMaps::give_all(Ino ino, uint64_t from, uint64_t to, bool grow, Given given) {
  uint64_t growth = 0;
  const uint64_t until_ns = patience_ends_ns();
  if (grow) {
    PMSTORE_CO_TRY(const Inode inode, co_await core_.inode(ino));
    growth = growth_of(inode.attributes.data_bytes);
  }
  while (core_.space().takers() == 0) {
    const bool may_fit = co_await more_is_free(Lack::kOther, until_ns);
    if (!may_fit) break;
  }
  while (from < to) {
    const uint64_t most_to = std::min(std::max(to, from + growth), kMaxFileBytes);
    Step step{.reached = from};
    const PosixStatus done = co_await give_some(ino, from, to, most_to, step, given);
    if (!done) {
      if (done.number() != ENOSPC) co_return done.error();
      const bool may_fit = co_await more_is_free(step.lack, until_ns);
      if (!may_fit && step.lack == Lack::kUnits) co_return no_room(done.error());
      if (!may_fit) co_return done.error();
      continue;
    }
    PMSTORE_CHECK(step.reached > from, "each step maps something, or finds it mapped");
    from = step.reached;
  }
  co_return PosixStatus();
}

uint64_t FileMaps::patience_ends_ns() const {
  return core_.executor().now_ns() + core_.options().room_patience_ns;
}

// The space grows if it can. What others have removed is free when it is clean, which takes a
// moment.
Task<bool> FileMaps::more_is_free(Lack lack, uint64_t until_ns) {
  constexpr uint64_t kWaitNs = 10'000'000;
  if (lack == Lack::kUnits) {
    const Status grown = co_await core_.space().make_room();
    if (grown) co_return true;
  }
  const bool may_come = core_.queue.has_work() || core_.space().takers_are_away();
  if (!may_come || core_.executor().now_ns() >= until_ns) co_return false;
  co_await core_.executor().sleep_for(kWaitNs);
  co_return true;
}

Task<PosixStatus> FileMaps::check_room(Ino ino, uint64_t from, uint64_t to) {
  uint64_t missing = to - from;
  for (uint64_t at = from; at < to;) {
    PMSTORE_CO_TRY(const std::vector<Piece> some, co_await pieces(ino, at, to, kMostPieces));
    for (const Piece& piece : some) missing -= part_of(piece, from, to).bytes;
    at = some.size() == kMostPieces ? some.back().end() : to;
  }
  const uint64_t until_ns = patience_ends_ns();
  uint64_t least_lack = UINT64_MAX;
  while (missing > core_.space().free_bytes()) {
    PMSTORE_CO_TRY_STATUS(check_space_known());
    const uint64_t lack = missing - core_.space().free_bytes();
    // Sections that do not make up for it would be taken from others for nothing.
    const bool is_growth_enough = lack <= core_.space().growable_bytes();
    // Behind its patience a call goes on while each section brings it nearer.
    const bool is_nearer = lack < least_lack;
    least_lack = std::min(lack, least_lack);
    bool may_fit = is_nearer || core_.executor().now_ns() < until_ns;
    if (may_fit) {
      may_fit = co_await more_is_free(is_growth_enough ? Lack::kUnits : Lack::kOther, until_ns);
    }
    if (!may_fit) {
      co_return no_room(PosixError(ENOSPC, "less is free for file data than the range needs"));
    }
  }
  co_return PosixStatus();
}

Task<PosixStatus> FileMaps::zero(Ino ino, uint64_t from, uint64_t to, Given made) {
  core_.reservations.take_back(ino);
  const auto is_made = [&made](const Piece& piece) {
    return made != nullptr && std::binary_search(made->begin(), made->end(), piece,
                                                 [](const Piece& one, const Piece& other) {
                                                   return one.file_offset < other.file_offset;
                                                 });
  };
  while (from < to) {
    PMSTORE_CO_TRY(const std::vector<Piece> some, co_await pieces(ino, from, to, kMostPieces));
    for (const Piece& piece : some) {
      if (is_made(piece)) continue;
      const AreaRange part = part_of(piece, from, to);
      PMSTORE_CO_TRY_STATUS(co_await core_.space().zero(part));
    }
    if (some.size() < kMostPieces) break;
    from = some.back().end();
  }
  co_return PosixStatus();
}

// What one transaction of take() has done.
struct FileMaps::Taken {
  explicit Taken(ReclaimQueue& queue) : held(queue) {}
  Attributes attributes;
  struct Freed {
    uint64_t id;
    AreaRange range;
  };
  std::vector<Freed> freed;
  ReclaimQueue::Held held;  // what is freed
  uint64_t reached = 0;
};

Task<PosixStatus> FileMaps::take_in(NamespaceTransaction& transaction, Ino ino,
                                    uint64_t changed_from, uint64_t to, const WithFirst& change,
                                    Taken& taken) {
  // Of an attempt that has lost.
  taken.held.drop();
  taken.freed.clear();
  PMSTORE_CO_TRY(Inode inode, co_await transaction.inode(ino));
  PMSTORE_CO_TRY(const std::vector<Piece> there,
                 co_await transaction.pieces(ino, changed_from, to, kMostPieces));
  taken.reached = there.size() == kMostPieces ? std::min(to, there.back().end()) : to;
  const bool truncates = to == kMaxFileBytes && inode.attributes.links > 0;
  std::optional<OrphanKind> orphan;
  if (truncates) {
    PMSTORE_CO_TRY(orphan, co_await transaction.orphan(ino));
  }
  if (change) change(inode);
  const uint64_t from = unit_up(changed_from);
  for (const Piece& piece : there) {
    if (piece.end() <= from) continue;
    const AreaRange freed = part_of(piece, from, to);
    taken.freed.push_back({core_.next_freed_id++, freed});
    inode.attributes.data_bytes -= freed.bytes;
    if (piece.file_offset < from) {
      transaction.put_piece(ino, {piece.file_offset, part_of(piece, 0, from)});
    } else {
      transaction.erase_piece(ino, piece.file_offset);
    }
    if (piece.end() > to) transaction.put_piece(ino, {to, part_of(piece, to, piece.end())});
  }
  for (const Taken::Freed& freed : taken.freed) {
    transaction.put_freed(freed.id, freed.range);
    taken.held.hold(freed.id);
  }
  // A crash between this transaction and the next leaves extents behind the size: they are freed
  // by the queue. An unlinked inode has an orphan's record already, for all of them.
  const bool goes_on = taken.reached < to;
  if (truncates && goes_on && !orphan) transaction.put_orphan(ino, OrphanKind::kTruncated);
  if (truncates && !goes_on && orphan) transaction.erase_orphan(ino);
  ++inode.attributes.version;
  transaction.put(inode);
  taken.attributes = inode.attributes;
  co_return PosixStatus();
}

// Before the transaction: a client whose session at a data server outlives this server would write
// to what is no longer the file's. Nobody gets a map before the lock is released.
Task<PosixStatus> FileMaps::change_words(Ino ino, uint64_t from, uint64_t to) {
  PMSTORE_CO_TRY(const std::vector<Piece> there, co_await pieces(ino, from, to, kMostPieces));
  co_return co_await change_words_of(there);
}

Task<PosixStatus> FileMaps::change_words_of(const std::vector<Piece>& there) {
  if (there.empty()) co_return PosixStatus();
  std::vector<AreaRange> places;
  places.reserve(there.size());
  for (const Piece& piece : there) places.push_back(piece.place);
  PMSTORE_CO_TRY_STATUS(co_await core_.space().change_generations(std::move(places)));
  co_return PosixStatus();
}

Task<PosixStatus> FileMaps::end_maps(SharedGuard guard, Ino ino) {
  PMSTORE_CHECK(guard->holds(), "a map ends under the lock of its inode");
  uint64_t from = 0;
  while (true) {
    PMSTORE_CO_TRY(const std::vector<Piece> some,
                   co_await pieces(ino, from, kMaxFileBytes, kMostPieces));
    PMSTORE_CO_TRY_STATUS(co_await change_words_of(some));
    if (some.size() < kMostPieces) co_return PosixStatus();
    PMSTORE_CHECK(some.back().end() > from, "each step is behind the one before");
    from = some.back().end();
  }
}

// Behind the commit.
void FileMaps::tell(Ino ino, Taken& taken) {
  for (const Taken::Freed& freed : taken.freed) core_.quarantined_bytes += freed.range.bytes;
  core_.map_has_changed(ino);
  for (const Taken::Freed& freed : taken.freed) core_.space().retire(freed.range);
  taken.held.drop();
  for (const Taken::Freed& freed : taken.freed) {
    core_.queue.add({ReclaimQueue::Kind::kFreed, freed.id, freed.range});
  }
}

// When it is over, and not kept, its records say what became of it.
Task<FileMaps::Fate> FileMaps::fate_by_record(TxId doubt, uint64_t freed_id, bool when_committed) {
  const Fate fate = co_await core_.fate_of(doubt);
  if (fate != Fate::kNotKept) co_return fate;
  const auto recorded = co_await core_.is_freed(freed_id);
  if (!recorded) co_return Fate::kNeverKnown;
  co_return *recorded == when_committed ? Fate::kCommitted : Fate::kAborted;
}

Task<FileMaps::Fate> FileMaps::fate_of_erasing(TxId doubt, uint64_t freed_id) {
  return fate_by_record(doubt, freed_id, false);
}

Task<FileMaps::Fate> FileMaps::fate_of_freeing(TxId doubt, uint64_t freed_id) {
  return fate_by_record(doubt, freed_id, true);
}

// The transaction of `taken` is in doubt: nobody goes on with the old map, nor gets a new one,
// until it is known which of them holds. A store that has failed never says it.
Task<void> FileMaps::settle(Ino ino, std::unique_ptr<Taken> taken, TxId doubt) {
  core_.map_has_changed(ino);
  Fate fate = Fate::kAborted;
  if (taken->freed.empty()) {
    fate = co_await core_.fate_of(doubt);
  } else {
    fate = co_await fate_of_freeing(doubt, taken->freed.front().id);
  }
  if (fate == Fate::kNeverKnown) {
    taken->held.keep();
    co_return;  // the file stays unsettled
  }
  if (fate == Fate::kCommitted) tell(ino, *taken);
  core_.unsettled.erase(ino);
  finish_later(ino);
}

// If a truncation was cut short, its orphan's record says so.
void FileMaps::finish_later(Ino ino) {
  core_.queue.add({ReclaimQueue::Kind::kInode, raw(ino), {}});
}

Task<PosixResult<Attributes>> FileMaps::take(SharedGuard guard, Ino ino, uint64_t from, uint64_t to,
                                             WithFirst with_first) {
  PMSTORE_CHECK(guard->holds(), "a map is changed under the lock of its inode");
  PMSTORE_CHECK(to % kUnitBytes == 0, "units are freed as a whole");
  PMSTORE_CHECK(from <= to, "a range does not end before it begins");
  core_.reservations.take_back(ino);
  while (true) {
    if (PosixStatus changed = co_await change_words(ino, from, to); !changed) {
      finish_later(ino);
      co_return std::move(changed.error());
    }
    auto taken = std::make_unique<Taken>(core_.queue);
    const auto body = [&](NamespaceTransaction& transaction) {
      return take_in(transaction, ino, from, to, with_first, *taken);
    };
    NamespaceCore::Doubt doubt;
    const PosixStatus done = co_await core_.take_away<void>(body, &doubt);
    if (doubt) {
      core_.unsettled.insert(ino);
      core_.tasks.start(settle(ino, std::move(taken), *doubt));
      co_return done.error();
    }
    if (!done) {
      finish_later(ino);
      co_return done.error();
    }
    const uint64_t reached = taken->reached;
    tell(ino, *taken);
    if (reached == to) co_return std::move(taken->attributes);
    from = reached;
    with_first = nullptr;
  }
}

Task<PosixStatus> FileMaps::finish_truncation(SharedGuard guard, Ino ino) {
  using Kind = std::optional<OrphanKind>;
  const auto body = [ino](NamespaceTransaction& transaction) { return transaction.orphan(ino); };
  PMSTORE_CO_TRY(const Kind left, co_await core_.look<Kind>(body));
  if (left != OrphanKind::kTruncated) co_return PosixStatus();
  PMSTORE_CO_TRY(const Inode inode, co_await core_.inode(ino));
  const auto done =
      co_await take(std::move(guard), ino, inode.attributes.size, kMaxFileBytes, nullptr);
  if (!done) co_return done.error();
  co_return PosixStatus();
}

}  // namespace pmstore::fs::internal
