#include "fs/internal/file_mover.h"

#include <fmt/format.h>

#include <cerrno>
#include <memory>
#include <optional>

namespace pmstore::fs::internal {

Task<PosixResult<FileMover::Page>> FileMover::find(uint16_t server, std::string from) {
  constexpr uint32_t kAtOnce = 256;
  const auto body = [&](NamespaceTransaction& transaction) -> Task<PosixResult<Page>> {
    Page found;
    const KeyRange range{from, {}};
    TransactionScan scan = transaction.transaction().scan(core_.tables.maps, range);
    auto page = co_await scan.next(kAtOnce);
    if (!page) co_return transaction.failed(std::move(page.error()));
    found.is_last = page->empty();
    for (const RecordRef record : *page) {
      found.next = std::string(record.key) + '\0';
      const auto ino = ino_of_key(record.key);
      const auto piece = decode_piece(record.key, record.value);
      // What does not decode is the check's.
      if (!ino || !piece || piece->place.server != server) continue;
      found.places.push_back({*ino, piece->file_offset, piece->place.bytes});
    }
    co_return found;
  };
  co_return co_await core_.look<Page>(body);
}

Task<PosixStatus> FileMover::move(uint16_t server, Place place) {
  auto guard = std::make_shared<InodeLocks::Guard>(co_await core_.data_locks.exclusive(place.ino));
  // Its extents are in quarantine.
  if (core_.deleting.contains(place.ino)) co_return PosixStatus();
  PMSTORE_CO_TRY_STATUS(core_.check_settled(place.ino));
  for (uint64_t done = 0; done < place.bytes;) {
    PMSTORE_CO_TRY(const uint64_t moved,
                   co_await maps_.move(guard, place.ino, place.file_offset + done, server));
    if (moved == 0) break;  // it has changed meanwhile
    done += moved;
  }
  co_return PosixStatus();
}

Task<PosixResult<uint64_t>> FileMover::move_all(uint16_t server) {
  uint64_t count = 0;
  std::optional<PosixError> failure;
  std::string from;
  while (true) {
    PMSTORE_CO_TRY(const Page page, co_await find(server, from));
    if (page.is_last) break;
    from = page.next;
    for (const Place& place : page.places) {
      if (!core_.space().gives_away(server)) {
        co_return PosixError(EIO, "the data server is away, or is not drained any more");
      }
      ++count;
      const PosixStatus moved = co_await move(server, place);
      if (moved || moved.number() == ESTALE || failure) continue;
      failure = PosixError(moved.number(), fmt::format("inode {} at {}: {}", raw(place.ino),
                                                       place.file_offset, moved.error().message));
    }
  }
  if (failure) co_return std::move(*failure);
  co_return count;
}

}  // namespace pmstore::fs::internal
