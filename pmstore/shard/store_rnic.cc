// The server's part of transactions whose locks are taken by RNIC atomics (LockDiscipline::kRnic).

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "pmstore/layout/record.h"
#include "pmstore/shard/store.h"

namespace pmstore::internal {

base::Task<Result<ReserveReply>> Store::reserve(WordChanger& changer, uint16_t owner, TableId table,
                                                std::string_view key, uint32_t value_bytes,
                                                bool move) {
  if (!catalog_.exists(table)) co_return catalog_.unknown(table);
  if (key.empty()) co_return make_error(ErrorCode::kInvalidArgument, "a key has 1 to 255 bytes");
  if (value_bytes > kMaxValueBytes) {
    co_return make_error(ErrorCode::kTooLarge, "a value has at most 1 MiB");
  }
  const KeyHash hash = hash_key(table, key);
  std::optional<SlotOffset> damaged;
  const auto found = find(table, key, hash, damaged);
  if (!found && damaged) co_return damaged_key(*damaged);
  if (!move && found) {
    // While it is locked, its erase may be committed and only not applied yet.
    const bool undecided = reservation(found->slot) || words_.load(found->slot).is_locked();
    co_return make_error(undecided ? ErrorCode::kConflict : ErrorCode::kAlreadyExists);
  }
  const uint8_t size_class = size_class_of(record_bytes(key.size(), value_bytes));
  auto allocated = arena_.allocate(size_class);
  if (!allocated) co_return allocated.error();
  const SlotOffset slot = *allocated;
  // Taken before the first suspension: a second reserve() of the key meets it.
  pending_[raw(slot)] = Reservation{owner, !move, table, std::string(key)};
  pending_[raw(slot)].number = ++last_reservation_;
  const uint64_t bucket = index_.bucket_of(hash);
  const uint64_t before = index_.version(bucket);
  if (!move) {
    index_.begin_change(bucket);
    index_.insert(hash, size_class, slot);
    index_.end_change(bucket);
  }
  const uint64_t after = index_.version(bucket);
  const LockWord word = words_.load(slot);
  const uint64_t version = std::max(word.version(), arena_.base_version(slot));
  const LockWord locked = LockWord::locked(version, owner);
  auto changed = co_await changer.compare_swap(slot, word, locked);
  if (!changed || !*changed) {
    // Somebody has locked the word of a free slot, who may not, or it is not known whether this
    // has. The slot stays unused until the next start; another one serves the next try.
    forget_reservation(slot);
    if (!changed) co_return changed.error();
    co_return make_error(ErrorCode::kConflict, "a client has locked what it was not given");
  }
  co_return ReserveReply{raw(slot), version, size_class, {}, bucket, before, after};
}

base::Task<Status> Store::release(WordChanger& changer, uint16_t owner, SlotOffset slot) {
  const auto found = pending_.find(raw(slot));
  if (found == pending_.end() || found->second.owner != owner) {
    co_return make_error(ErrorCode::kInvalidArgument, "that slot is not reserved by this client");
  }
  const uint64_t number = found->second.number;
  const LockWord word = words_.load(slot);
  auto changed = co_await changer.compare_swap(slot, word, LockWord::unlocked(word.version()));
  if (!changed) co_return changed.error();
  // The client may release a slot twice at a time: the slot may be another client's by now.
  const Reservation* const now = reservation(slot);
  if (now == nullptr || now->number != number) co_return Status{};
  if (!*changed) {
    co_return make_error(ErrorCode::kConflict, "its lock word changes; release it again");
  }
  forget_reservation(slot);
  arena_.free_slot(slot);
  co_return Status{};
}

bool Store::forget_reservation(SlotOffset slot) {
  const auto found = pending_.find(raw(slot));
  if (found == pending_.end()) return false;
  if (found->second.indexed) {
    const KeyHash hash = hash_key(found->second.table, found->second.key);
    const uint64_t bucket = index_.bucket_of(hash);
    index_.begin_change(bucket);
    index_.erase(hash, slot);
    index_.end_change(bucket);
  }
  pending_.erase(found);
  return true;
}

base::Task<Status> Store::apply(WordChanger& changer, uint16_t owner,
                                std::span<const std::byte> redo_bytes) {
  // First everything in place and in the index, then the locks: see apply_writes() in
  // store_commit.cc.
  struct Unlock {
    SlotOffset slot;
    LockWord from;
    uint64_t version;
    bool frees;
    uint64_t bucket;
    bool bucket_changed;
  };
  std::vector<Unlock> unlocks;
  // Before the first write: neither resolving nor recovery would apply the rest of it.
  if (!is_whole_redo(redo_bytes, catalog_.header().pool)) {
    co_return make_error(ErrorCode::kProtocol, "not a whole redo record of this pool");
  }
  auto redo = RedoReader::open(redo_bytes, catalog_.header().pool);
  while (const auto write = redo->next()) {
    const auto slab = arena_.slab_at(write->slot);
    if (!slab || write->image.size() > kSlotBytes[slab->size_class]) continue;
    const uint64_t version = write->record.version();
    const LockWord word = words_.load(write->slot);
    const bool begun = begun_tombstone(write->slot, owner, version);
    // The unlock of an earlier call has taken effect, though that call could not know it.
    if (begun && word == LockWord::unlocked(version)) free_tombstone(write->slot);
    // Done before, or not this client's to change.
    if (word.version() >= version || !word.is_locked() || word.owner() != owner) continue;
    const auto table = static_cast<TableId>(write->record.header->table);
    const KeyHash hash = hash_key(table, write->record.key);
    Unlock unlock{write->slot, word, version, !write->record.live(), index_.bucket_of(hash), false};
    const bool indexed = index_.contains(hash, write->slot);
    // A client can lock every word, also that of a slot that is free or holds another key: but not
    // have it written, nor freed.
    const Reservation* const reserved = reservation(write->slot);
    const bool may = reserved ? reserved->owner == owner && reserved->table == table &&
                                    reserved->key == write->record.key
                              : indexed;
    if (begun) {
      unlocks.push_back(unlock);
      continue;
    }
    if (!may) continue;
    write_record(write->slot, write->image);
    if (unlock.frees) tombstones_[raw(write->slot)] = {owner, version};
    if (write->record.live() != indexed || pending_.contains(raw(write->slot))) {
      index_.begin_change(unlock.bucket);
      unlock.bucket_changed = true;
      if (write->record.live() && !indexed) index_.insert(hash, slab->size_class, write->slot);
      if (!write->record.live() && indexed) index_.erase(hash, write->slot);
    }
    pending_.erase(raw(write->slot));
    unlocks.push_back(unlock);
  }
  PMSTORE_CHECK(!redo->malformed(), "nobody changes a redo record while it is applied");
  Status status;
  for (const Unlock& unlock : unlocks) {
    auto changed =
        co_await changer.compare_swap(unlock.slot, unlock.from, LockWord::unlocked(unlock.version));
    // False: another apply of the same entry came first, and has done the rest.
    if (!changed) status = changed.error();
    // Two calls may both believe that theirs was the unlock; the slot is freed once.
    const bool unlocked = changed && *changed;
    if (unlocked && unlock.frees && begun_tombstone(unlock.slot, owner, unlock.version)) {
      free_tombstone(unlock.slot);
    }
    if (unlock.bucket_changed) index_.end_change(unlock.bucket);
  }
  co_return status;
}

base::Task<Status> Store::resolve(WordChanger& changer, uint16_t owner, log::Ring& ring,
                                  std::span<const SlotOffset> announced) {
  PMSTORE_CO_TRY_STATUS(ring.walk([](const log::EntryView&) {}));
  // The client may have gone between its WRITE and the READ that makes it durable; and what is
  // applied here is seen by others, who would depend on it.
  const Status durable = ring.make_walked_durable();
  if (!durable) {
    failed_ = true;
    co_return durable;
  }
  // apply() suspends and a visitor cannot, so the payloads are collected first.
  std::vector<std::vector<std::byte>> entries;
  ring.for_each_entry([&](const log::EntryView& entry) {
    entries.emplace_back(entry.payload.begin(), entry.payload.end());
  });
  for (const auto& entry : entries) {
    if (!is_whole_redo(entry, catalog_.header().pool)) continue;  // nobody's transaction
    const Status applied = co_await apply(changer, owner, entry);
    if (!applied) co_return applied;
  }
  PMSTORE_CO_TRY_STATUS(co_await release_all(changer, owner));
  // All that it has logged is finished; a tombstone that is left here was unlocked by the client
  // itself, against the protocol. Its slot is not used again before the next start.
  std::erase_if(tombstones_, [&](const auto& entry) { return entry.second.owner == owner; });
  co_return co_await free_locks(changer, owner, announced);
}

base::Task<Status> Store::release_all(WordChanger& changer, uint16_t owner) {
  std::vector<SlotOffset> reserved;
  for (const auto& [slot, reservation] : pending_) {
    if (reservation.owner == owner) reserved.push_back(static_cast<SlotOffset>(slot));
  }
  for (const SlotOffset slot : reserved) {
    PMSTORE_CO_TRY_STATUS(co_await release(changer, owner, slot));
  }
  co_return Status{};
}

// What the client had locked and never logged: the old versions stay.
base::Task<Status> Store::free_locks(WordChanger& changer, uint16_t owner,
                                     std::span<const SlotOffset> announced) {
  constexpr uint64_t kWordsPerTurn = 1 << 10;  // each may be a cache miss: some 100 us
  uint64_t looked_at = 0;
  for (const SlotOffset slot : announced) {
    if (++looked_at % kWordsPerTurn == 0) co_await changer.pause();
    if (raw(slot) >= arena_.bytes() || raw(slot) % 64 != 0) continue;
    const LockWord word = words_.load(slot);
    if (!word.is_locked() || word.owner() != owner) continue;
    auto changed = co_await changer.compare_swap(slot, word, LockWord::unlocked(word.version()));
    if (!changed) co_return changed.error();
  }
  co_return Status{};
}

// ---- tombstones that are not unlocked yet ----

bool Store::begun_tombstone(SlotOffset slot, uint16_t owner, uint64_t version) const {
  const auto found = tombstones_.find(raw(slot));
  return found != tombstones_.end() && found->second.owner == owner &&
         found->second.version == version;
}

void Store::free_tombstone(SlotOffset slot) {
  PMSTORE_CHECK(tombstones_.erase(raw(slot)) == 1, "a tombstone's slot is freed once");
  arena_.free_slot(slot);
}

}  // namespace pmstore::internal
