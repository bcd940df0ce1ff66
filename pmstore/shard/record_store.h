// RecordStore: the records of one pool, and how they are found: slots, lock words, index.
//
// It is the part of a store that the commits of both lock disciplines, recovery, scans and table
// drops share. It holds the catalog of tables, the slab arena (slots in persistent memory), one
// lock word per slot, the index, and the reservations of slots that will hold new records.
//
// Invariants: a slot that the index shows holds a live record of its key, or is reserved for it;
// the version of an unlocked lock word is the version of the slot's record; a slot's version never
// falls. Readers check these and report damage; writers keep them.
// Threads: one; one-sided clients READ records, lock words and index at any moment. Not movable:
// the arena asks it for versions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "persist/pool.h"
#include "pmstore/layout/protocol.h"
#include "pmstore/layout/record.h"
#include "pmstore/shard/key_index.h"
#include "pmstore/shard/lock_table.h"
#include "pmstore/shard/reservations.h"
#include "pmstore/shard/slab_arena.h"
#include "pmstore/shard/table_catalog.h"
#include "pmstore/shard/viewed_slots.h"

namespace pmstore::internal {

// The owner in lock words that the server itself has locked; owners of sessions begin at 1.
inline constexpr uint16_t kServerOwner = 0;

// Damaged: the record in `slot` may be the one that was looked for.
Error damaged_key(SlotOffset slot);
// Damaged: the record in `slot` is the one that was looked for.
Error damaged_record(SlotOffset slot);
// Full: no record can follow what this slot holds.
Error versions_used_up(SlotOffset slot);

class RecordStore {
 public:
  RecordStore(persist::Pool& pool, TableCatalog catalog, SlabArena arena, LockTable words,
              KeyIndex index);
  RecordStore(const RecordStore&) = delete;
  RecordStore& operator=(const RecordStore&) = delete;
  ~RecordStore() { viewed_->end_of_store(); }

  persist::Pool& pool() const { return pool_; }
  persist::Memory& memory() const { return memory_; }
  TableCatalog& catalog() { return catalog_; }
  const TableCatalog& catalog() const { return catalog_; }
  SlabArena& arena() { return arena_; }
  const SlabArena& arena() const { return arena_; }
  LockTable& words() { return words_; }
  const LockTable& words() const { return words_; }
  KeyIndex& index() { return index_; }
  const KeyIndex& index() const { return index_; }
  Reservations& reservations() { return reservations_; }
  const Reservations& reservations() const { return reservations_; }

  // How much of a record a reader needs: header and key, or the value as well.
  enum class Needs : uint8_t { kKey, kValue };

  // The slot that holds the key's record or is reserved for it; nullopt when there is none. Sets
  // `damaged` to a slot that may hold the key's record and fails its checksum: then nullopt does
  // not mean that the key is absent.
  // Asks for what the caller `needs` of the record.
  std::optional<IndexEntry> find(const IndexKey& key, std::optional<SlotOffset>& damaged,
                                 Needs needs = Needs::kKey) const;
  // `inserts` says whether a transaction that is not in place inserts the key, which the index does
  // not show yet.
  void set_insert_source(std::function<bool(const IndexKey&)> inserts) {
    inserts_ = std::move(inserts);
  }
  // Lock discipline cpu: no client writes records, so they can be looked at in their slots.
  void set_sole_writer() { sole_writer_ = true; }
  bool is_sole_writer() const { return sole_writer_; }

  // Finds the record of a key. Errors: UnknownTable, Damaged; Conflict while the record is locked.
  // An absence whose version is odd is true, and cannot be validated: the key's bucket or leaf is
  // in change for other keys.
  struct Found {
    GetReply reply{};        // kWithValue or kNo
    std::string_view value;  // until the next call of this object, or change of the record
    bool copied = false;     // the value, to `into`
  };
  // Copies a large value to `into`, where it is not larger, in the pass that checks the record.
  // After an error `into` may have got any bytes.
  Result<Found> read(TableId table, std::string_view key, std::span<std::byte> into = {}) const;
  // Asks for the memory that reads of these keys will need: for that of all of them before any of
  // it is waited for. Does nothing for keys of an ordered table.
  void prefetch(TableId table, std::span<const std::string_view> keys) const;
  // The two steps of that, for one key of a hash table: its bucket, and then, once that is there,
  // lock word and record. Only table and hash of the key are looked at. Inline as
  // LockTable::prefetch().
  [[gnu::always_inline]] void prefetch_bucket(const IndexKey& key) const { index_.prefetch(key); }
  [[gnu::always_inline]] void prefetch_record(const IndexKey& key) const {
    constexpr size_t kSmallBytes = 2048;  // more of each would push the others out of the caches
    // Most keys have one entry with their tag, which is theirs.
    const auto likely = index_.find(key, [](IndexEntry) { return true; });
    if (!likely) return;
    const bool small = kSlotBytes[likely->size_class] <= kSmallBytes;
    prefetch(*likely, small ? Needs::kValue : Needs::kKey);
  }
  // The same as a reply: a GetReply and the value in `room`, without the value where `room` is too
  // small for it; gives their size. TooLarge: no room for a GetReply.
  Result<size_t> get(TableId table, std::string_view key, std::span<std::byte> room) const;

  // A copy of the record that an index entry shows, valid until the next call of this object.
  // Conflict: it is locked or reserved, or changes. Damaged.
  Result<RecordView> record_at(IndexEntry entry) const;
  // Asks for the memory that record_at() will read. Inline as LockTable::prefetch().
  [[gnu::always_inline]] void prefetch(IndexEntry entry, Needs needs = Needs::kKey) const {
    words_.prefetch(entry.slot);
    const std::byte* const record = arena_.at(entry.slot);
    const size_t bytes = kSlotBytes[entry.size_class];
    __builtin_prefetch(record);
    if (bytes > persist::kLineBytes) __builtin_prefetch(record + persist::kLineBytes);
    if (needs == Needs::kKey) return;
    ask_for_pages(record, bytes);
    const size_t near = std::min<size_t>(bytes, kPageBytes);
    for (size_t at = 2 * persist::kLineBytes; at < near; at += persist::kLineBytes) {
      __builtin_prefetch(record + at);
    }
  }

  // The records that transactions look at in their slots. Only where is_sole_writer().
  const std::shared_ptr<ViewedSlots>& viewed_slots() const { return viewed_; }
  bool is_viewed(SlotOffset slot) const { return viewed_->is_viewed(slot); }
  // The record in `slot` is gone: the slot can be allocated again when no view of it is left.
  void free_slot(SlotOffset slot) { viewed_->free_slot(slot); }

  // The version that a new record in `slot` must exceed.
  uint64_t version_of(SlotOffset slot) const;
  // Stores a record's image in its slot. Requires that a redo record with this image is durable:
  // nothing is durable here, and truncation of the redo record flushes the image first. Into a slot
  // that is viewed comes only a tombstone (CHECK), and what lies behind it stays.
  void write_in_place(SlotOffset slot, std::span<const std::byte> image);

  // Recovery found a damaged record in `slot`, and no redo record repairs it. The slot stays unused
  // until the next start; its lock word shows at least `version`, and more than the slot had.
  void give_up(SlotOffset slot, uint64_t version);
  // The same of a slot whose word has its version.
  void give_up_again(SlotOffset slot);
  const std::unordered_set<uint64_t>& given_up() const { return given_up_; }
  // A record was found damaged since the start: the next start looks at all of them.
  bool has_seen_damage() const { return has_seen_damage_; }
  void note_damage() const { has_seen_damage_ = true; }
  bool is_given_up(SlotOffset slot) const {
    return !given_up_.empty() && given_up_.contains(raw(slot));
  }

 private:
  static constexpr size_t kPageBytes = 4096;
  // The processor fetches ahead within a page only. So the first lines of the pages behind the
  // first one, and their translations, are asked for before the reader gets there. Of a large
  // record only those of its beginning: more would push each other out of the caches, and out of
  // the processor's list of misses.
  [[gnu::always_inline]] static void ask_for_pages(const std::byte* from, size_t bytes) {
    constexpr size_t kMost = 16 * kPageBytes;
    if (bytes <= kPageBytes) return;
    const size_t end = std::min(bytes, kMost);
    const auto address = reinterpret_cast<uintptr_t>(from);
    for (size_t at = kPageBytes - address % kPageBytes; at < end; at += kPageBytes) {
      for (size_t line = 0; line < 4; ++line) {
        __builtin_prefetch(from + at + line * persist::kLineBytes);
      }
    }
  }
  bool holds(SlotOffset slot, const IndexKey& key) const;
  bool is_damaged(IndexEntry entry) const;
  bool may_be_inserted(const IndexKey& key) const;
  void write_tombstone_beside_view(SlotOffset slot, std::span<const std::byte> image);
  Result<RecordView> record_at(IndexEntry entry, std::span<std::byte> into, bool& copied) const;
  std::optional<RecordView> checked_record(SlotOffset slot, uint8_t size_class, LockWord word,
                                           std::span<std::byte> into, bool& copied) const;

  persist::Pool& pool_;
  persist::Memory& memory_;
  const persist::PaddingRules padding_;  // of the pool
  const bool flushed_by_truncation_;     // records of any size; else only small ones
  TableCatalog catalog_;
  SlabArena arena_;
  LockTable words_;
  KeyIndex index_;
  Reservations reservations_;
  std::unordered_set<uint64_t> given_up_;
  mutable bool has_seen_damage_ = false;
  const std::shared_ptr<ViewedSlots> viewed_;
  mutable std::vector<std::byte> copy_;  // of one record, while its checksum is checked
  bool sole_writer_ = false;             // no client writes records
  std::function<bool(const IndexKey&)> inserts_;
};

}  // namespace pmstore::internal
