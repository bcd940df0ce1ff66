// FileMaps: the extents of files: given, taken away, zeroed.
//
// Invariants: a unit is mapped by a durable transaction before anything is written to it, and free
// units are zero; so a hole that gets a unit still reads as zeros. What lies at or behind a file's
// size is not trusted. An inode's data_bytes is the sum of its extents.
// Each change of a map, and each zero behind a size, takes back the reservation of its file.
// All calls need the exclusive lock of the inode's data; those that take a guard by value hold it
// until their transactions have ended, even if the caller is destroyed.
// Threads, errors: as Namespace. Lifetimes: the core outlives it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/task.h"
#include "fs/internal/namespace_core.h"

namespace pmstore::fs::internal {

using SharedGuard = std::shared_ptr<InodeLocks::Guard>;

constexpr uint64_t unit_down(uint64_t bytes) { return bytes / kUnitBytes * kUnitBytes; }
constexpr uint64_t unit_up(uint64_t bytes) { return unit_down(bytes + kUnitBytes - 1); }

// What of `piece` lies in [from, to) of the file; requires that they meet.
AreaRange part_of(const Piece& piece, uint64_t from, uint64_t to);

class FileMaps {
 public:
  explicit FileMaps(NamespaceCore& core) : core_(core) {}

  // The extents that touch [from, to), at most `most`.
  base::Task<PosixResult<std::vector<Piece>>> pieces(Ino ino, uint64_t from, uint64_t to,
                                                     size_t most);
  // Extents that a call has made: they are zero until it writes to them.
  using Given = std::shared_ptr<std::vector<Piece>>;
  // Every unit of [from, to) gets an extent, durably; both are multiples of kUnitBytes. With
  // `grow`, and nothing mapped behind, more than was asked for. `given` gets what was made. An
  // error: nothing has changed, unless the store is away.
  base::Task<PosixStatus> give(SharedGuard guard, Ino ino, uint64_t from, uint64_t to, bool grow,
                               Given given);
  // The file loses what give() has made just now, and the call that asked for it has not written
  // to. It keeps what the store cannot erase.
  base::Task<void> take_back(SharedGuard guard, Ino ino, Given given);
  // ENOSPC: give() of the range would end so. Nothing has changed.
  base::Task<PosixStatus> check_room(Ino ino, uint64_t from, uint64_t to);
  // Zeros in [from, to) where there are extents, durably; but for those that were made just now.
  base::Task<PosixStatus> zero(Ino ino, uint64_t from, uint64_t to, Given made = {});
  // The units of [from, to) lose their extents; `to` is a multiple of kUnitBytes, and `from` is
  // rounded up. The first transaction also does `with_first`. Before each transaction the
  // generation words of the extents change that touch [from, to), not rounded. EIO: they cannot,
  // because a data server is away; or it is in doubt whether a transaction has committed: then the
  // file is unsettled, and a task of its own goes on with it.
  using WithFirst = std::function<void(Inode&)>;
  base::Task<PosixResult<Attributes>> take(SharedGuard guard, Ino ino, uint64_t from, uint64_t to,
                                           WithFirst with_first);
  // No client accesses the file any more by a map that it was given before, nor gets a map before
  // the lock is released. A write that such a map has led to, and that was acknowledged, is over.
  // EIO: a data server is away.
  base::Task<PosixStatus> end_maps(SharedGuard guard, Ino ino);
  // What a crash has left of a truncation: extents behind the size go, and the orphan's record.
  base::Task<PosixStatus> finish_truncation(SharedGuard guard, Ino ino);
  // The extent at `file_offset`, if it is at this data server, gets another place, or a part of it
  // from its start on. Gives how many bytes were moved. ENOSPC: there is no other place.
  base::Task<PosixResult<uint64_t>> move(SharedGuard guard, Ino ino, uint64_t file_offset,
                                         uint16_t server);

  // The bytes take the place of those at `offset`, as a whole: they are written to new units, with
  // what these units have beside them, and one transaction, which also does `change`, gives the
  // file the new units and frees the old ones. At most kMaxMessageData, of a file that is not
  // inline, beginning below its size. An error: nothing has changed.
  base::Task<PosixResult<Attributes>> replace(SharedGuard guard, Ino ino, uint64_t offset,
                                              std::vector<std::byte> bytes, WithFirst change);

  static constexpr size_t kMostPieces = 64;  // in one transaction
  // Where several data servers take data, no extent goes over a multiple of this in its file.
  static constexpr uint64_t kStripeBytes = 256 * 1024;

 private:
  struct Taken;
  struct Moved;
  struct Replaced;

  PosixResult<std::vector<Piece>> allocate_missing(const std::vector<Piece>& there, Ino ino,
                                                   uint64_t from, uint64_t to, uint64_t most_to);
  PosixStatus allocate_into(std::vector<Piece>& pieces, Ino ino, uint64_t from, uint64_t to,
                            uint64_t most_to);
  // Damaged: it is not known which units are free.
  Status check_space_known() const;
  // What a call ends with that got no units. EIO for ENOSPC: a data server is away.
  PosixError no_room(PosixError why) const;
  // Of at least a unit, for bytes from `at` of the file on.
  Result<AreaRange> allocate(Ino ino, uint64_t at, uint64_t most);
  void give_back(const std::vector<Piece>& pieces);
  // Until when a call that begins now waits for space.
  uint64_t patience_ends_ns() const;
  // What stood in the way of a step that got no extents.
  enum class Lack : uint8_t { kUnits, kOther };
  struct Step {
    uint64_t reached = 0;  // in the file
    Lack lack = Lack::kOther;
  };
  // Where units are lacking, the space grows, if it can. False: nothing more will be free, or it
  // takes too long.
  base::Task<bool> more_is_free(Lack lack, uint64_t until_ns);
  base::Task<PosixStatus> give_all(Ino ino, uint64_t from, uint64_t to, bool grow, Given given);
  base::Task<PosixStatus> give_some(Ino ino, uint64_t from, uint64_t to, uint64_t most_to,
                                    Step& step, Given given);
  base::Task<PosixStatus> take_in(NamespaceTransaction& transaction, Ino ino, uint64_t from,
                                  uint64_t to, const WithFirst& change, Taken& taken);
  // Of the extents that the next transaction of take() takes from, as they are in the map.
  base::Task<PosixStatus> change_words(Ino ino, uint64_t from, uint64_t to);
  base::Task<PosixStatus> change_words_of(const std::vector<Piece>& there);
  void tell(Ino ino, Taken& taken);
  base::Task<PosixStatus> record_new_place(Moved& moved);
  base::Task<PosixStatus> copy(const Moved& moved);
  base::Task<PosixStatus> change_place(Ino ino, const Moved& moved);
  base::Task<PosixStatus> allocate_new(Ino ino, Replaced& replaced);
  base::Task<PosixStatus> record_new_places(Replaced& replaced);
  base::Task<PosixStatus> fill_new_places(const Replaced& replaced, uint64_t offset,
                                          std::span<const std::byte> bytes);
  base::Task<PosixStatus> switch_in(NamespaceTransaction& transaction, Ino ino,
                                    const WithFirst& change, Replaced& replaced);
  base::Task<PosixStatus> switch_places(Ino ino, const WithFirst& change, Replaced& replaced);
  // Of a transaction in doubt. kNeverKnown: what it has changed, or has not, is left alone until
  // the next start.
  using Fate = NamespaceCore::Fate;
  // It takes this range out of the record.
  base::Task<Fate> fate_of_erasing(TxId doubt, uint64_t freed_id);
  // It records this range as freed.
  base::Task<Fate> fate_of_freeing(TxId doubt, uint64_t freed_id);
  base::Task<Fate> fate_by_record(TxId doubt, uint64_t freed_id, bool when_committed);
  // The file's extents are not known before the next start.
  void close_for_good(Ino ino) { core_.unsettled.insert(ino); }
  void finish_later(Ino ino);
  base::Task<void> settle(Ino ino, std::unique_ptr<Taken> taken, TxId doubt);

  NamespaceCore& core_;
};

}  // namespace pmstore::fs::internal
