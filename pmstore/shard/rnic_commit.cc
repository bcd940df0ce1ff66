#include "pmstore/shard/rnic_commit.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/check.h"
#include "pmstore/layout/record.h"

namespace pmstore::internal {

base::Task<Result<ReserveReply>> RnicCommit::reserve(WordChanger& changer, uint16_t owner,
                                                     TableId table, std::string_view key,
                                                     uint32_t value_bytes, bool move,
                                                     ReserveFor transaction) {
  const TableCatalog& catalog = records_.catalog();
  if (!catalog.exists(table)) co_return catalog.unknown(table);
  if (key.empty()) co_return make_error(ErrorCode::kInvalidArgument, "a key has 1 to 512 bytes");
  if (value_bytes > kMaxValueBytes) {
    co_return make_error(ErrorCode::kTooLarge, "a value has at most 1 MiB");
  }
  LockTable& words = records_.words();
  KeyIndex& index = records_.index();
  const IndexKey wanted = IndexKey::of(table, key);
  std::optional<SlotOffset> damaged;
  const auto found = records_.find(wanted, damaged);
  if (!found && damaged) co_return damaged_key(*damaged);
  if (!move && found) {
    // While the record is locked, its erase may be committed and only not applied yet.
    const bool undecided =
        records_.reservations().at(found->slot) || words.load(found->slot).is_locked();
    co_return make_error(undecided ? ErrorCode::kConflict : ErrorCode::kAlreadyExists);
  }
  if (transaction.scanned && is_ordered(table) && inserts_of_others(wanted, owner, transaction)) {
    co_return make_error(ErrorCode::kConflict, "others insert keys where this one has scanned");
  }
  const uint8_t size_class = size_class_of(record_bytes(key.size(), value_bytes));
  auto allocated = records_.arena().allocate(size_class);
  if (!allocated) co_return allocated.error();
  const SlotOffset slot = *allocated;
  // Not freed: the next try gets another one.
  if (records_.version_of(slot) >= kMaxRecordVersion) co_return versions_used_up(slot);
  // Before the first suspension: another reserve() of the key finds it.
  records_.reservations().add(
      slot, Reservation{owner, !move, table, std::string(key), transaction.sequence});
  const uint64_t unit = index.unit_of(wanted);
  const uint64_t before = index.version(unit);
  Status shown;
  if (!move) shown = show_reserved(wanted, {slot, size_class});
  if (!shown) {
    records_.reservations().remove(slot);
    records_.arena().free_slot(slot);
    co_return shown.error();
  }
  // The change of a bucket that nothing else changes is over; and whatever its end has split since
  // is not this transaction's change.
  const bool ended = !move && !is_ordered(table) && before % 2 == 0;
  const uint64_t after = ended ? before + 2 : before;
  const LockWord word = words.load(slot);
  const uint64_t version = std::max(word.version(), records_.arena().base_version(slot));
  const LockWord locked = LockWord::locked(version, owner);
  auto changed = co_await changer.compare_swap(slot, word, locked);
  if (!changed || !*changed) {
    // Either a client has locked the word of a free slot, against the protocol, or it is not known
    // whether the word is locked. The slot stays unused until the next start; the next try gets
    // another one.
    cancel_reservation(slot);
    if (!changed) co_return changed.error();
    co_return make_error(ErrorCode::kConflict, "a client has locked what it was not given");
  }
  co_return ReserveReply{raw(slot), version, size_class, {}, unit, before, after};
}

bool RnicCommit::inserts_of_others(const IndexKey& key, uint16_t owner,
                                   ReserveFor transaction) const {
  return !records_.index().all_changes_near(key, [&](IndexEntry entry) {
    const Reservation* const reserved = records_.reservations().at(entry.slot);
    return reserved != nullptr && reserved->owner == owner &&
           reserved->sequence == transaction.sequence;
  });
}

// A bucket shows the slot, and is stable again: who reads the slot finds it locked. A leaf stays in
// change, so that a scan waits, and one from before is a Conflict.
Status RnicCommit::show_reserved(const IndexKey& key, IndexEntry slot) {
  KeyIndex& index = records_.index();
  if (!is_ordered(key.table)) return index.insert_alone(key, slot.size_class, slot.slot);
  PMSTORE_TRY_STATUS(index.begin_change(key));
  index.insert(key, slot.size_class, slot.slot);
  return {};
}

base::Task<Status> RnicCommit::release(WordChanger& changer, uint16_t owner, SlotOffset slot) {
  const Reservation* const reserved = records_.reservations().at(slot);
  if (reserved == nullptr || reserved->owner != owner) {
    co_return make_error(ErrorCode::kInvalidArgument, "that slot is not reserved by this client");
  }
  const uint64_t number = reserved->number;
  const LockWord word = records_.words().load(slot);
  auto changed = co_await changer.compare_swap(slot, word, LockWord::unlocked(word.version()));
  if (!changed) co_return changed.error();
  // The client may release a slot twice at the same time: the slot may be another client's by now.
  const Reservation* const now = records_.reservations().at(slot);
  if (now == nullptr || now->number != number) co_return Status{};
  if (!*changed) {
    co_return make_error(ErrorCode::kConflict, "its lock word changes; release it again");
  }
  cancel_reservation(slot);
  records_.arena().free_slot(slot);
  co_return Status{};
}

void RnicCommit::cancel_reservation(SlotOffset slot) {
  const Reservation* const reserved = records_.reservations().at(slot);
  if (reserved == nullptr) return;  // another call was first
  if (reserved->indexed) {
    KeyIndex& index = records_.index();
    const IndexKey key = IndexKey::of(reserved->table, reserved->key);
    if (!is_ordered(reserved->table)) {
      index.remove_alone(key, slot);
    } else {
      index.remove(key, slot);
      index.end_change(key);
    }
  }
  records_.reservations().remove(slot);
}

// ---- apply ----

// One write of a redo record: the record in place, and its index entry. What is left to unlock is
// added to `begun`.
void RnicCommit::put_in_place(uint16_t owner, const LoggedWrite& write, Begun& begun) {
  KeyIndex& index = records_.index();
  const auto slab = records_.arena().slab_at(write.slot);
  if (!slab || write.image.size() > kSlotBytes[slab->size_class]) return;
  const uint64_t version = write.record.version();
  const LockWord word = records_.words().load(write.slot);
  const bool again = has_tombstone(write.slot, owner, version);
  // The unlock of an earlier call has taken effect, though that call could not know it.
  if (again && word == LockWord::unlocked(version)) free_tombstone(write.slot);
  // Done before, or not this client's to change.
  if (word.version() >= version || !word.is_locked() || word.owner() != owner) return;
  const IndexKey key =
      IndexKey::of(static_cast<TableId>(write.record.header->table), write.record.key);
  const bool erase = !write.record.live();
  Unlock unlock{write.slot, word, version, erase, false, key};
  if (again) {
    begun.unlocks.push_back(unlock);
    return;
  }
  const bool indexed = index.contains(key, write.slot);
  // A client can lock every word, also that of a slot that is free or holds another key: but such a
  // slot is neither written nor freed.
  const Reservation* const reserved = records_.reservations().at(write.slot);
  bool may = reserved ? reserved->owner == owner && reserved->table == key.table &&
                            reserved->key == key.key
                      : indexed;
  const bool in_order = is_ordered(key.table);
  if (may && in_order) {
    may = change_leaf(key, {write.slot, slab->size_class}, erase, reserved != nullptr, begun);
  }
  if (!may) return;
  records_.write_in_place(write.slot, write.image);
  if (erase) tombstones_[raw(write.slot)] = {owner, version};
  if (!in_order && (erase == indexed || reserved)) {
    const Status changing = index.begin_change(key);
    PMSTORE_CHECK(changing, "a bucket is always ready to change");
    unlock.bucket_changes = true;
    if (!erase && !indexed) index.insert(key, slab->size_class, write.slot);
    if (erase && indexed) index.remove(key, write.slot);
  }
  if (reserved) records_.reservations().remove(write.slot);
  begun.unlocks.push_back(unlock);
}

// The change ends before the record is unlocked, unlike a bucket's: only the server looks at
// leaves, and whoever finds the new entry finds its record locked. False: the key has another
// record, or another client inserts it, and neither is `owner`'s to change.
bool RnicCommit::change_leaf(const IndexKey& key, IndexEntry at, bool erase, bool reserved,
                             Begun& begun) {
  KeyIndex& index = records_.index();
  const auto entry = index.in_order(key);
  const bool shown = entry && entry->record && entry->record->slot == at.slot;
  if (shown ? !erase && !entry->in_change : erase) return true;
  // A move: its tombstone, which comes first, has left the entry without a record.
  const bool moves = entry && entry->in_change && !entry->record;
  if (!shown && entry && !moves) return false;
  if (!entry || !entry->in_change) {
    if (!index.begin_change(key)) return false;
    begun.keys.push_back(key);
  } else if (shown && reserved) {
    begun.keys.push_back(key);  // reserve() has begun the change
  }
  if (!shown) index.insert(key, at.size_class, at.slot);
  if (shown && erase) index.remove(key, at.slot);
  return true;
}

base::Task<Status> RnicCommit::apply(WordChanger& changer, uint16_t owner,
                                     std::span<const std::byte> redo_bytes) {
  // Checked before the first write: neither resolve() nor recovery would apply the rest of it.
  const auto whole = open_whole_redo(redo_bytes, records_.catalog().header().epoch);
  if (!whole) {
    co_return make_error(ErrorCode::kProtocol, "not a whole redo record");
  }
  // First everything in place and in the index, then the locks: see CpuCommit::apply().
  // Tombstones go before records: an entry of an ordered table shows one slot at a time.
  Begun begun;
  for (const bool live : {false, true}) {
    ShardRecordReader redo = *whole;
    while (const auto write = redo.next()) {
      if (write->record.live() == live) put_in_place(owner, *write, begun);
    }
    PMSTORE_CHECK(!redo.malformed(), "nothing changes a redo record while it is applied");
  }
  for (const IndexKey& key : begun.keys) records_.index().end_change(key);
  Status status;
  for (const Unlock& unlock : begun.unlocks) {
    PMSTORE_CHECK(unlock.version > unlock.from.version(), "a slot's version only grows");
    auto changed =
        co_await changer.compare_swap(unlock.slot, unlock.from, LockWord::unlocked(unlock.version));
    // False: another apply() of the same entry was first, and has done the rest.
    if (!changed) status = changed.error();
    // Two calls may both believe that theirs was the unlock; the slot is freed once.
    const bool unlocked = changed && *changed;
    if (unlocked && unlock.frees && has_tombstone(unlock.slot, owner, unlock.version)) {
      free_tombstone(unlock.slot);
    }
    if (unlock.bucket_changes) records_.index().end_change(unlock.key);
  }
  co_return status;
}

bool RnicCommit::has_tombstone(SlotOffset slot, uint16_t owner, uint64_t version) const {
  const auto found = tombstones_.find(raw(slot));
  return found != tombstones_.end() && found->second.owner == owner &&
         found->second.version == version;
}

void RnicCommit::free_tombstone(SlotOffset slot) {
  PMSTORE_CHECK(tombstones_.erase(raw(slot)) == 1, "a tombstone's slot is freed once");
  records_.arena().free_slot(slot);
}

// ---- the end of a client ----

base::Task<Status> RnicCommit::resolve(WordChanger& changer, uint16_t owner, log::Ring& ring,
                                       std::span<const SlotOffset> announced) {
  PMSTORE_CO_TRY_STATUS(ring.walk([](const log::EntryView&) {}));
  // The client may have gone between its WRITE and the READ that makes it durable; and what is
  // applied here is seen by others, who would depend on it.
  const auto durable = ring.make_walked_durable();
  if (!durable) {
    latch_.set();
    co_return durable.error();
  }
  // apply() suspends and a visitor cannot, so the payloads are collected first.
  std::vector<std::vector<std::byte>> entries;
  ring.for_each_entry([&](const log::EntryView& entry) {
    entries.emplace_back(entry.payload.begin(), entry.payload.end());
  });
  for (const auto& entry : entries) {
    // Not a transaction.
    if (!open_whole_redo(entry, records_.catalog().header().epoch)) continue;
    const Status applied = co_await apply(changer, owner, entry);
    if (!applied) co_return applied;
  }
  PMSTORE_CO_TRY_STATUS(co_await release_all(changer, owner));
  // All that the client has logged is finished. A tombstone that is left was unlocked by the client
  // itself, against the protocol; its slot is not used again before the next start.
  std::erase_if(tombstones_, [&](const auto& entry) { return entry.second.owner == owner; });
  co_return co_await free_locks(changer, owner, announced);
}

base::Task<Status> RnicCommit::release_all(WordChanger& changer, uint16_t owner) {
  const std::vector<SlotOffset> reserved = records_.reservations().of_owner(owner);
  for (const SlotOffset slot : reserved) {
    PMSTORE_CO_TRY_STATUS(co_await release(changer, owner, slot));
  }
  co_return Status{};
}

// What the client has locked and never logged: the old versions stay.
base::Task<Status> RnicCommit::free_locks(WordChanger& changer, uint16_t owner,
                                          std::span<const SlotOffset> announced) {
  constexpr uint64_t kWordsPerTurn = 1 << 10;  // each may be a cache miss: some 100 us
  const LockTable& words = records_.words();
  uint64_t visited = 0;
  for (const SlotOffset slot : announced) {
    if (++visited % kWordsPerTurn == 0) co_await changer.pause();
    if (raw(slot) >= records_.arena().slot_space_bytes() || raw(slot) % 64 != 0) continue;
    const LockWord word = words.load(slot);
    if (!word.is_locked() || word.owner() != owner) continue;
    auto changed = co_await changer.compare_swap(slot, word, LockWord::unlocked(word.version()));
    if (!changed) co_return changed.error();
  }
  co_return Status{};
}

}  // namespace pmstore::internal
