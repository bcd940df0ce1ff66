#include "fs/internal/reclaimer.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/check.h"

namespace pmstore::fs::internal {

void Reclaimer::start() {
  for (unsigned i = 0; i < kWorkers; ++i) core_.tasks.start(work_for_ever());
  core_.queue.ask_for_scan();
  if (core_.options().reclaim_ns == 0 || core_.is_new) return;
  core_.in_grace = true;
  core_.tasks.start(end_grace());
}

Task<void> Reclaimer::end_grace() {
  co_await core_.executor().sleep_for(core_.options().reclaim_ns);
  core_.in_grace = false;
  core_.queue.ask_for_scan();
}

Task<void> Reclaimer::work_for_ever() {
  while (true) {
    Work work = co_await core_.queue.next();
    const PosixStatus done = co_await work_on(work);
    if (!done) core_.queue.failed();
    if (done) {
      core_.queue.done(work);
    } else if (work.kind == Kind::kScan) {
      co_await core_.executor().sleep_for(kPauseNs);
      core_.queue.ask_for_scan();
      core_.queue.done(work);
    } else if (delayed_ < ReclaimQueue::kMost) {
      core_.tasks.start(try_later(std::move(work)));
    } else {
      co_await core_.executor().sleep_for(kPauseNs);
      core_.queue.again(std::move(work));
    }
  }
}

Task<void> Reclaimer::try_later(Work work) {
  constexpr unsigned kMostDoublings = 6;
  ++delayed_;
  co_await core_.executor().sleep_for(kPauseNs << std::min(work.failures, kMostDoublings));
  --delayed_;
  ++work.failures;
  core_.queue.again(std::move(work));
}

Task<PosixStatus> Reclaimer::work_on(Work& work) {
  switch (work.kind) {
    case Kind::kInode: return reclaim_inode(work);
    case Kind::kFreed: return release_freed(work);
    case Kind::kScan: break;
  }
  return scan();
}

template <typename Add>
Task<PosixStatus> Reclaimer::scan_table(TableId table, Add add) {
  constexpr uint32_t kAtOnce = 256;
  std::string from;
  while (true) {
    std::vector<Record> records;
    const auto body = [&](NamespaceTransaction& transaction) -> Task<PosixStatus> {
      records.clear();
      const KeyRange range{from, {}};
      TransactionScan scan = transaction.transaction().scan(table, range);
      auto page = co_await scan.next(kAtOnce);
      if (!page) co_return transaction.failed(std::move(page.error()));
      for (const RecordRef record : *page) records.push_back(record.copy());
      co_return PosixStatus();
    };
    PMSTORE_CO_TRY_STATUS(co_await core_.look<void>(body));
    if (records.empty()) co_return PosixStatus();
    for (const Record& record : records) {
      add(record);
      // The rest is scanned again when there is room.
      while (core_.queue.is_full()) co_await core_.executor().sleep_for(kPauseNs / 1000);
    }
    from = records.back().key + '\0';
  }
}

// A record that does not decode is the check's: it holds up nothing.
Task<PosixStatus> Reclaimer::scan() {
  const auto add_orphan = [this](const Record& record) {
    const auto ino = ino_of_key(record.key);
    const auto kind = decode_orphan(record.value);
    if (!ino || !kind || core_.damaged.contains(*ino)) return;
    const bool is_used = core_.in_grace || core_.opens.is_open(*ino);
    if (*kind == OrphanKind::kTruncated || !is_used) {
      core_.queue.add({Kind::kInode, raw(*ino), {}});
    }
  };
  PMSTORE_CO_TRY_STATUS(co_await scan_table(core_.tables.orphans, add_orphan));
  const auto add_freed = [this](const Record& record) {
    const auto id = freed_id_of_key(record.key);
    const auto range = decode_place(record.value);
    if (id && range) core_.queue.add({Kind::kFreed, *id, *range});
  };
  co_return co_await scan_table(core_.tables.freed, add_freed);
}

Task<PosixStatus> Reclaimer::clean(AreaRange range) {
  // Others do not wait for it: this is tried again later.
  if (!core_.space().is_there(range.server)) {
    co_return PosixError(EIO, "the data server that has the range is away");
  }
  std::vector<AreaRange> ranges{range};
  PMSTORE_CO_TRY_STATUS(co_await core_.space().change_generations(std::move(ranges)));
  PMSTORE_CO_TRY_STATUS(co_await core_.space().clean(range));
  co_return PosixStatus();
}

Task<PosixResult<bool>> Reclaimer::is_recorded(uint64_t id, AreaRange range) {
  using Recorded = std::optional<AreaRange>;
  const auto body = [id](NamespaceTransaction& transaction) { return transaction.freed(id); };
  PMSTORE_CO_TRY(const Recorded recorded, co_await core_.look<Recorded>(body));
  co_return recorded == range;
}

Task<PosixStatus> Reclaimer::release_freed(Work& work) {
  const uint64_t id = work.id;
  const AreaRange range = work.range;
  PMSTORE_CO_TRY(const bool is_there, co_await is_recorded(id, range));
  // A scan has seen the record before another worker was done with it. The range is somebody's.
  if (!is_there && !work.erase_in_doubt) co_return PosixStatus();
  PMSTORE_CO_TRY_STATUS(co_await clean(range));
  const auto body = [id](NamespaceTransaction& transaction) -> Task<PosixStatus> {
    transaction.erase_freed(id);
    co_return PosixStatus();
  };
  if (is_there) {
    NamespaceCore::Doubt doubt;
    const PosixStatus erased = co_await core_.take_away<void>(body, &doubt);
    if (doubt) work.erase_in_doubt = true;
    // Also when an attempt that was in doubt has erased it just now: the next one sees that.
    if (!erased) co_return erased.error();
  }
  PMSTORE_CHECK(core_.quarantined_bytes >= range.bytes, "what is freed was in quarantine");
  core_.quarantined_bytes -= range.bytes;
  core_.space().release(range);
  co_return PosixStatus();
}

Task<PosixStatus> Reclaimer::reclaim_inode(Work& work) {
  const Ino ino{work.id};
  auto guard = std::make_shared<InodeLocks::Guard>(co_await core_.data_locks.exclusive(ino));
  PMSTORE_CO_TRY_STATUS(core_.check_settled(ino));
  PosixResult<Inode> inode = co_await core_.inode(ino);
  if (!inode && inode.number() == ESTALE) {  // it is deleted already
    // By an attempt that was in doubt, if it is counted still.
    if (core_.deleting.erase(ino) > 0) --core_.inodes;
    co_return co_await erase_orphan(ino);
  }
  if (!inode) co_return std::move(inode.error());
  if (inode->attributes.links > 0) co_return co_await maps_.finish_truncation(guard, ino);
  if (core_.in_grace || core_.opens.is_open(ino)) co_return PosixStatus();
  if (core_.deleting.insert(ino).second) core_.map_has_changed(ino);
  // Nobody can begin anything with it; cleaning takes as long as the slowest client does.
  guard->release();
  co_return co_await delete_inode(work);
}

// Of a file that was unlinked before its truncation was finished.
Task<PosixStatus> Reclaimer::erase_orphan(Ino ino) {
  const auto body = [ino](NamespaceTransaction& transaction) -> Task<PosixStatus> {
    PMSTORE_CO_TRY(const auto orphan, co_await transaction.orphan(ino));
    if (orphan) transaction.erase_orphan(ino);
    co_return PosixStatus();
  };
  co_return co_await core_.take_away<void>(body);
}

Task<PosixStatus> Reclaimer::delete_inode(Work& work) {
  const Ino ino{work.id};
  PMSTORE_CO_TRY_STATUS(co_await delete_extents(work));
  PMSTORE_CO_TRY_STATUS(co_await delete_xattrs(ino));
  PMSTORE_CO_TRY_STATUS(co_await delete_record(ino));
  core_.deleting.erase(ino);
  PMSTORE_CHECK(core_.inodes > 0, "an inode that is deleted was counted");
  --core_.inodes;
  co_return PosixStatus();
}

Task<PosixStatus> Reclaimer::delete_extents(Work& work) {
  const Ino ino{work.id};
  while (true) {
    PMSTORE_CO_TRY(const std::vector<Piece> some,
                   co_await maps_.pieces(ino, 0, kMaxFileBytes, FileMaps::kMostPieces));
    const auto release = [this](std::vector<AreaRange>& places) {
      for (const AreaRange& place : std::exchange(places, {})) core_.space().release(place);
    };
    // Nothing else takes them from an inode that goes: if its first one is not there, all are gone.
    std::vector<AreaRange>& places = work.places_in_doubt;
    const bool are_gone = !places.empty() && (some.empty() || some.front().place != places.front());
    if (are_gone) release(places);
    if (some.empty()) co_return PosixStatus();
    for (const Piece& piece : some) core_.space().retire(piece.place);
    for (const Piece& piece : some) {
      PMSTORE_CO_TRY_STATUS(co_await clean(piece.place));
    }
    const auto body = [&](NamespaceTransaction& transaction) -> Task<PosixStatus> {
      PMSTORE_CO_TRY(Inode inode, co_await transaction.inode(ino));
      for (const Piece& piece : some) {
        transaction.erase_piece(ino, piece.file_offset);
        inode.attributes.data_bytes -= piece.place.bytes;
      }
      transaction.put(inode);
      co_return PosixStatus();
    };
    places.clear();
    for (const Piece& piece : some) places.push_back(piece.place);
    PMSTORE_CO_TRY_STATUS(co_await core_.take_away<void>(body));
    release(places);
  }
}

Task<PosixStatus> Reclaimer::delete_xattrs(Ino ino) {
  constexpr uint32_t kAtOnce = 64;
  bool complete = false;
  while (!complete) {
    const auto body = [&](NamespaceTransaction& transaction) -> Task<PosixStatus> {
      // One that is set meanwhile changes the inode, too: then one of both has lost.
      PMSTORE_CO_TRY(Inode inode, co_await transaction.inode(ino));
      const KeyRange range = keys_of(ino);
      auto erased = co_await transaction.transaction().erase_range(transaction.tables().xattrs,
                                                                   range, kAtOnce);
      if (!erased) co_return transaction.failed(std::move(erased.error()));
      complete = erased->complete;
      if (complete && std::exchange(inode.xattr_bytes, 0) > 0) transaction.put(inode);
      co_return PosixStatus();
    };
    PMSTORE_CO_TRY_STATUS(co_await core_.take_away<void>(body));
  }
  co_return PosixStatus();
}

Task<PosixStatus> Reclaimer::delete_record(Ino ino) {
  const auto body = [ino](NamespaceTransaction& transaction) -> Task<PosixStatus> {
    PMSTORE_CO_TRY(const Inode inode, co_await transaction.inode(ino));
    if (inode.attributes.links > 0 || inode.attributes.data_bytes > 0 || inode.xattr_bytes > 0) {
      co_return PosixError(
          EIO,
          "an inode that is deleted has a link, an extent or an attribute; run `pmstore fs "
          "check`");
    }
    transaction.erase_inode(ino);
    transaction.erase_orphan(ino);
    co_return PosixStatus();
  };
  co_return co_await core_.take_away<void>(body);
}

}  // namespace pmstore::fs::internal
