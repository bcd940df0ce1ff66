// The server's part of transactions whose locks are taken by RNIC atomics (LockDiscipline::kRnic).

#include <algorithm>
#include <cstring>

#include "pmstore/internal/store.h"
#include "pmstore/record.h"

namespace pmstore::internal {

base::Task<Result<ReserveReply>> Store::reserve(WordChanger& changer, uint16_t owner, TableId table,
                                                std::string_view key, uint32_t value_bytes,
                                                bool move) {
  if (!catalog_.exists(table)) co_return make_error(ErrorCode::kUnknownTable);
  if (key.empty()) co_return make_error(ErrorCode::kInvalidArgument, "a key has 1 to 255 bytes");
  if (value_bytes > kMaxValueBytes) {
    co_return make_error(ErrorCode::kTooLarge, "a value has at most 1 MiB");
  }
  const KeyHash hash = hash_key(table, key);
  const auto found = find(table, key, hash);
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
  const LockWord word = words_.load(slot);
  auto changed = co_await changer.compare_swap(slot, word, LockWord::unlocked(word.version()));
  if (!changed) co_return changed.error();
  if (forget_reservation(slot)) arena_.free_slot(slot);
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
  auto redo = RedoReader::open(redo_bytes, catalog_.header().pool);
  if (!redo) co_return make_error(ErrorCode::kProtocol, "not a redo record of this pool");
  while (const auto write = redo->next()) {
    const auto slab = arena_.slab_at(write->slot);
    if (!slab || write->image.size() > kSlotBytes[slab->size_class]) continue;
    const uint64_t version = write->record.version();
    const LockWord word = words_.load(write->slot);
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
    if (!may) continue;
    write_record(write->slot, write->image);
    if (write->record.live() != indexed || pending_.contains(raw(write->slot))) {
      index_.begin_change(unlock.bucket);
      unlock.bucket_changed = true;
      if (write->record.live() && !indexed) index_.insert(hash, slab->size_class, write->slot);
      if (!write->record.live() && indexed) index_.erase(hash, write->slot);
    }
    pending_.erase(raw(write->slot));
    unlocks.push_back(unlock);
  }
  const bool malformed = redo->malformed();
  Status status;
  for (const Unlock& unlock : unlocks) {
    auto changed =
        co_await changer.compare_swap(unlock.slot, unlock.from, LockWord::unlocked(unlock.version));
    // False: another apply of the same entry came first, and has done the rest.
    if (!changed) status = changed.error();
    if (changed && *changed && unlock.frees) arena_.free_slot(unlock.slot);
    if (unlock.bucket_changed) index_.end_change(unlock.bucket);
  }
  if (malformed) co_return make_error(ErrorCode::kProtocol, "a malformed redo record");
  co_return status;
}

base::Task<Status> Store::resolve(WordChanger& changer, uint16_t owner, log::Ring& ring) {
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
  std::vector<SlotOffset> reserved;
  for (const auto& [slot, reservation] : pending_) {
    if (reservation.owner == owner) reserved.push_back(static_cast<SlotOffset>(slot));
  }
  for (const SlotOffset slot : reserved) {
    const Status released = co_await release(changer, owner, slot);
    if (!released) co_return released;
  }
  // What it had locked and never logged: the old versions stay.
  for (uint64_t offset = 0; offset < arena_.bytes(); offset += 64) {
    const auto slot = static_cast<SlotOffset>(offset);
    const LockWord word = words_.load(slot);
    if (!word.is_locked() || word.owner() != owner) continue;
    auto changed = co_await changer.compare_swap(slot, word, LockWord::unlocked(word.version()));
    if (!changed) co_return changed.error();
  }
  co_return Status{};
}

}  // namespace pmstore::internal
