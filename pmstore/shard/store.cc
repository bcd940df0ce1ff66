#include "pmstore/shard/store.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "pmstore/shard/recovery.h"

namespace pmstore::internal {

Store::Store(persist::Pool& pool, TableCatalog catalog, SlabArena arena, LockTable words,
             KeyIndex index)
    : latch_(pool.memory()),
      records_(pool, std::move(catalog), std::move(arena), std::move(words), std::move(index)),
      cursors_(records_.catalog().header().epoch),
      sessions_(records_.catalog()),
      rings_(records_, latch_),
      log_(records_, latch_),
      cpu_(records_, log_, latch_),
      two_phase_(records_, log_, cpu_, latch_),
      mover_(records_, cpu_, log_, sessions_, cursors_),
      rnic_(records_, latch_),
      drops_(records_, cpu_, latch_) {}

Result<std::unique_ptr<Store>> Store::make(persist::Pool& pool,
                                           const CheckpointReader* checkpoint) {
  PMSTORE_TRY(TableCatalog catalog, TableCatalog::load(pool));
  PMSTORE_TRY(SlabArena arena, checkpoint != nullptr
                                   ? SlabArena::restore(pool, catalog.header(), *checkpoint)
                                   : SlabArena::open(pool, catalog.header()));
  PMSTORE_TRY(LockTable words, LockTable::create(arena.slot_space_bytes()));
  const uint64_t most_bytes = std::min(pool.info().bytes, arena.slot_space_bytes());
  PMSTORE_TRY(KeyIndex index, KeyIndex::create(most_bytes));
  return std::unique_ptr<Store>(
      new Store(pool, std::move(catalog), std::move(arena), std::move(words), std::move(index)));
}

Result<std::unique_ptr<Store>> Store::open(persist::Pool& pool, const RecoveryOptions& options) {
  PMSTORE_TRY(const TableCatalog catalog, TableCatalog::load(pool));
  Checkpoint::Found found;
  if (options.ignore_checkpoint) {
    found.why_not = "the start was told to ignore it";
  } else {
    found = Checkpoint::find(pool, catalog.header());
  }
  if (found.reader) {
    auto store = make(pool, &*found.reader);
    if (!store && store.code() != ErrorCode::kDamaged) return store.error();
    if (store) {
      PMSTORE_TRY(const bool restored, (*store)->recover(options, &*found.reader));
      if (restored) return store;
    }
    found.why_not = store ? std::move((*store)->recovery_.checkpoint_refused)
                          : std::move(store.error().message);
  }
  PMSTORE_TRY(auto store, make(pool, nullptr));
  PMSTORE_TRY_STATUS(store->recover(options, nullptr));
  store->recovery_.checkpoint_refused = std::move(found.why_not);
  return store;
}

Result<bool> Store::recover(const RecoveryOptions& options, const CheckpointReader* checkpoint) {
  for (const TableInfo& table : catalog().tables()) {
    if (!is_ordered(table.id)) continue;
    PMSTORE_TRY_STATUS(index().add_ordered(table.id));
  }
  base::OneWorker here;
  Recovery recovery(records_, options.workers != nullptr ? *options.workers : here);
  std::optional<log::Ring> log;
  const auto replay = [&]() -> Status {
    PMSTORE_TRY_STATUS(recovery.replay_rings(rings_));
    PMSTORE_TRY(log, recovery.replay_log());
    return {};
  };
  if (checkpoint != nullptr) {
    const Status restored = recovery.restore(*checkpoint, replay);
    if (!restored && restored.code() != ErrorCode::kDamaged) return restored.error();
    recovery_ = recovery.report();
    if (!restored) {
      recovery_.checkpoint_refused = restored.error().message;
      return false;
    }
  } else {
    PMSTORE_TRY_STATUS(replay());
    PMSTORE_TRY_STATUS(recovery.rebuild_index(options.progress));
    recovery_ = recovery.report();
  }
  PMSTORE_TRY_STATUS(begin(*std::move(log)));
  return true;
}

// The headers come behind the workers' reading of the slots, which has mapped their pages. Before
// that nothing relies on them that a crash would keep.
Status Store::begin(log::Ring log) {
  PMSTORE_TRY_STATUS(arena().make_headers_durable());
  PMSTORE_TRY_STATUS(log_.begin(std::move(log)));
  PMSTORE_TRY_STATUS(two_phase_.restore());
  PMSTORE_TRY(const persist::Persisted not_clean, catalog().begin_epoch());
  PMSTORE_TRY_STATUS(Checkpoint::free_all(records_.pool(), not_clean));
  PMSTORE_TRY_STATUS(rings_.give_back_unowned());
  while (const auto frame = arena().empty_frame(0)) {
    if (const auto freed = give_back_frame(*frame); !freed) return freed.error();
  }
  arena().look_for_sparse();
  return {};
}

Result<uint64_t> Store::begin_session() {
  if (latch_.failed()) return latch_.error();
  auto number = sessions_.next(true);
  if (!number && number.code() == ErrorCode::kIo) latch_.set();
  if (!number) return number.error();
  return first_sequence_of(*number);
}

Status Store::take_ring(uint32_t index, ClientId client, uint64_t outcomes_until_ns,
                        uint64_t now_ns) {
  if (latch_.failed()) return latch_.error();
  PMSTORE_TRY(const uint32_t number, sessions_.next(false));
  return rings_.take(index, ring_owner(client), number, outcomes_until_ns, now_ns);
}

Result<Outcome> Store::outcome(TxId id, bool own, uint64_t now_ns) const {
  if (latch_.failed()) {
    return make_error(ErrorCode::kIo,
                      "the server can no longer make anything durable; ask after its restart");
  }
  PMSTORE_CHECK(log_.all_applied(), "an entry that may not be durable would be called committed");
  if (session_of(id.sequence) > sessions_.last()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "there is no transaction " + id.to_string() +
                          " yet: its number is beyond those of every session so far");
  }
  if (log_.has(id)) return Outcome::kCommitted;
  if (two_phase_.state(id)) {
    return make_error(ErrorCode::kCommitUnknown,
                      "transaction " + id.to_string() +
                          " of several servers is not decided yet; settle it, then ask again");
  }
  std::optional<Outcome> known;
  if (is_in_shard_log(id.sequence)) {
    known = log_.outcome_outside(id);
  } else {
    PMSTORE_TRY(known, rings_.outcome(id, own, now_ns));
  }
  if (known) return *known;
  return make_error(ErrorCode::kOutcomeExpired,
                    "the outcome of " + id.to_string() +
                        " is not kept any more: look at what it would have written");
}

Result<persist::Persisted> Store::finish_group() {
  PMSTORE_CHECK(group_size() > 0, "a drain is for a transaction");
  const auto logged = cpu_.finish_group();
  if (!logged) {
    two_phase_.abandon_group();
    return logged.error();
  }
  two_phase_.finish_group(*logged);
  return logged->persisted();
}

Result<TableId> Store::create_table(std::string_view name, TableKind kind) {
  if (latch_.failed()) return latch_.error();
  // A table that is in the catalog must get its index at each start.
  if (kind == TableKind::kOrdered) {
    PMSTORE_TRY_STATUS(index().provide_ordered());
  }
  auto created = catalog().create_table(name, kind);
  if (!created && created.code() == ErrorCode::kIo) latch_.set();
  if (!created || kind == TableKind::kHash) return created;
  const Status indexed = index().add_ordered(*created);
  PMSTORE_CHECK(indexed, "its index was provided");
  return created;
}

Status Store::look_at_headers(uint32_t most) {
  if (latch_.failed()) return latch_.error();
  Status looked = arena().look_at_headers(records_.pool(), most);
  if (!looked) latch_.set();
  return looked;
}

Result<bool> Store::give_back_idle_slabs(uint32_t most, uint32_t kept) {
  if (latch_.failed()) return latch_.error();
  auto all = arena().give_back_idle_slabs(most, kept);
  if (!all) latch_.set();
  return all;
}

Result<bool> Store::move_some_records(size_t most) {
  if (latch_.failed()) return latch_.error();
  PMSTORE_CHECK(group_size() == 0, "what waits for a drain comes first");
  auto more = mover_.step(most);
  if (!more && more.code() != ErrorCode::kFull) latch_.set();
  if (!more) mover_.stop();
  return more;
}

Result<size_t> Store::scan(ScanRequest request, std::span<std::byte> room) {
  PMSTORE_TRY(request.cursor, cursors_.position(request.cursor));
  PMSTORE_TRY(const size_t bytes, TableScan(records_).page(request, room));
  ScanReply reply;
  PMSTORE_CHECK(bytes >= sizeof(reply), "a page has a head");
  std::memcpy(&reply, room.data(), sizeof(reply));
  reply.cursor = cursors_.cursor(reply.cursor);
  std::memcpy(room.data(), &reply, sizeof(reply));
  return bytes;
}

Result<ScanReply> Store::scan(ScanRequest request, TableScan::Page& page) {
  PMSTORE_TRY(request.cursor, cursors_.position(request.cursor));
  PMSTORE_TRY(ScanReply reply, TableScan(records_).page(request, page));
  reply.cursor = cursors_.cursor(reply.cursor);
  return reply;
}

// A position is a slot where this call has visited as many as it may.
Result<TableUsageReply> Store::table_usage(TableId table, uint64_t cursor) {
  PMSTORE_TRY(const uint64_t position, cursors_.position(cursor));
  PMSTORE_TRY(TableUsageReply usage, TableScan(records_).usage(table, position * 64));
  PMSTORE_CHECK(usage.cursor % 64 == 0, "the next slot to be visited");
  usage.cursor = cursors_.cursor(usage.cursor / 64);
  return usage;
}

// The next extent of that frame, or of another one, may be used for slots with the same numbers. So
// versions go on above all that there were, whatever is left in logs and in clients' memories.
Result<bool> Store::give_back_frame(uint32_t frame, const std::function<void()>& withdraw) {
  if (latch_.failed()) return latch_.error();
  const uint64_t highest = arena().highest_version(frame);
  if (highest > kMostFreedVersion) {
    arena().keep(frame);
    return false;
  }
  if (withdraw) withdraw();
  auto durable = catalog().count_freed_version(highest);
  const Status freed = durable ? arena().give_back(frame, *durable) : Status(durable.error());
  if (freed) return true;
  latch_.set();
  return freed.error();
}

Status Store::close() {
  if (latch_.failed()) return latch_.error();
  stop_moving();
  viewed_slots()->free_kept();  // a checkpoint has no slot that no record uses
  PMSTORE_TRY_STATUS(rings_.flush_in_place());
  PMSTORE_TRY_STATUS(log_.flush_in_place());
  PMSTORE_TRY(const persist::Persisted in_place, memory().drain());
  no_checkpoint_.clear();
  if (const Status written = write_checkpoint(in_place); !written) {
    if (written.code() == ErrorCode::kIo) return written;
    no_checkpoint_ = written.error().message;
  }
  return catalog().mark_clean(in_place, sessions_.last());
}

Status Store::write_checkpoint(persist::Persisted in_place) {
  // What is committed and only remembered is in place, and the log keeps it.
  if (two_phase_.has_undecided() || cpu_.group_size() > 0) {
    return make_error(ErrorCode::kConflict, "transactions of several servers are not decided");
  }
  if (drops_.under_way()) {
    return make_error(ErrorCode::kConflict, "slots of a dropped table are not free yet");
  }
  return Checkpoint::write(records_, in_place);
}

}  // namespace pmstore::internal
