#include "pmstore/shard/record_store.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "base/atomic_copy.h"
#include "base/check.h"
#include "persist/padding.h"
#include "pmstore/layout/protocol.h"

namespace pmstore::internal {

namespace {

// A larger value is copied in the pass that checks its record; a smaller one is in the caches then,
// and its checksum takes no vectors.
constexpr uint32_t kCopiedInOnePass = 512;

}  // namespace

Error damaged_key(SlotOffset slot) {
  return make_error(ErrorCode::kDamaged,
                    "the record at offset " + std::to_string(raw(slot)) +
                        " of the records is damaged and may be this key's: the medium has changed "
                        "it; start the server again, which gives up damaged records and counts "
                        "them, and write what is missing");
}

Error damaged_record(SlotOffset slot) {
  return make_error(ErrorCode::kDamaged,
                    "the record at offset " + std::to_string(raw(slot)) +
                        " of the records fails its checksum: the medium has changed it; write or "
                        "delete its key, and look at the pool with `pmstore pool check`");
}

Error versions_used_up(SlotOffset slot) {
  return make_error(ErrorCode::kFull,
                    "the slot at offset " + std::to_string(raw(slot)) +
                        " of the records has used up its versions, which only a client that breaks "
                        "the protocol can do; copy the records into a new pool");
}

RecordStore::RecordStore(persist::Pool& pool, TableCatalog catalog, SlabArena arena,
                         LockTable words, KeyIndex index)
    : pool_(pool),
      memory_(pool.memory()),
      padding_(pool.info().padding),
      flushed_by_truncation_(pool.memory().domain() == persist::Domain::kNone),
      catalog_(std::move(catalog)),
      arena_(std::move(arena)),
      words_(std::move(words)),
      index_(std::move(index)),
      viewed_(std::make_shared<ViewedSlots>([this](SlotOffset slot) { arena_.free_slot(slot); })) {
  arena_.set_version_source([this](SlotOffset slot) { return version_of(slot); });
  arena_.set_growth_source([this] {
    return SlabArena::Growth{catalog_.header().freed_version, catalog_.kept_for_rings()};
  });
}

uint64_t RecordStore::version_of(SlotOffset slot) const {
  return std::max(words_.load(slot).version(), arena_.base_version(slot));
}

bool RecordStore::holds(SlotOffset slot, const IndexKey& key) const {
  RecordHeader header;
  const std::byte* const from = arena_.at(slot);
  base::copy_from_shared(&header, from, sizeof(header));
  if (header.state != RecordState::kLive || header.table != raw(key.table) ||
      header.key_bytes() != key.key.size()) {
    return false;
  }
  if (sole_writer_) return std::memcmp(from + sizeof(header), key.key.data(), key.key.size()) == 0;
  std::byte stored[kMaxKeyBytes];
  base::copy_from_shared(stored, from + sizeof(header), key.key.size());
  return std::memcmp(stored, key.key.data(), key.key.size()) == 0;
}

// A slot that the index shows, that is not reserved, and whose word is unlocked holds a live record
// of the word's version. If it does not while the word stays the same, the medium has changed it.
bool RecordStore::is_damaged(IndexEntry entry) const {
  const LockWord before = words_.load(entry.slot);
  if (before.is_locked() || reservations_.at(entry.slot)) return false;
  bool copied = false;
  const bool sound = checked_record(entry.slot, entry.size_class, before, {}, copied).has_value();
  const bool damaged = !sound && words_.load(entry.slot) == before;
  if (damaged) note_damage();
  return damaged;
}

// The live record of `word`, in copy_ or, where nobody else changes it, in its slot; nullopt if it
// is not whole.
std::optional<RecordView> RecordStore::checked_record(SlotOffset slot, uint8_t size_class,
                                                      LockWord word, std::span<std::byte> into,
                                                      bool& copied) const {
  const std::byte* const from = arena_.at(slot);
  std::span<const std::byte> image(from, kSlotBytes[size_class]);
  RecordHeader header;
  base::copy_from_shared(&header, from, sizeof(header));
  const uint64_t bytes = record_bytes(header.key_bytes(), header.value_bytes);
  if (bytes > image.size()) return std::nullopt;
  copied =
      sole_writer_ && header.value_bytes >= kCopiedInOnePass && header.value_bytes <= into.size();
  ask_for_pages(from, bytes);
  if (!sole_writer_) {
    if (copy_.size() < bytes) copy_.resize(bytes);
    base::copy_from_shared(copy_.data(), from, bytes);
    image = {copy_.data(), bytes};
  }
  const auto record = copied ? check_and_copy_record(image, slot, into) : check_record(image, slot);
  if (!record || !record->live() || record->version() != word.version()) return std::nullopt;
  return record;
}

std::optional<IndexEntry> RecordStore::find(const IndexKey& key, std::optional<SlotOffset>& damaged,
                                            Needs needs) const {
  return index_.find(key, [&](IndexEntry candidate) {
    // The lock word and the record's lines are asked for together, and not one after the other.
    prefetch(candidate, needs);
    // A reserved slot holds no record of its key yet.
    if (const Reservation* reserved = reservations_.at(candidate.slot)) {
      return reserved->table == key.table && reserved->key == key.key;
    }
    if (holds(candidate.slot, key)) return true;
    if (is_damaged(candidate)) damaged = candidate.slot;
    return false;
  });
}

// Of a key that the index does not show and whose bucket or leaf is in change. Inserts of other
// keys of it may take long: of a transaction that is prepared, or, in a leaf, of a client that is
// gone. Clients that lock by themselves compare a bucket's version, and not whether it is odd.
bool RecordStore::may_be_inserted(const IndexKey& key) const {
  if (!sole_writer_) return !is_ordered(key.table);
  return !inserts_ || inserts_(key);
}

Result<RecordStore::Found> RecordStore::read(TableId table, std::string_view key,
                                             std::span<std::byte> into) const {
  if (!catalog_.exists(table)) return catalog_.unknown(table);
  const IndexKey wanted = IndexKey::of(table, key);
  Found read;
  GetReply& reply = read.reply;
  std::optional<SlotOffset> damaged;
  const auto found = find(wanted, damaged, Needs::kValue);
  if (!found) {
    if (damaged) return damaged_key(*damaged);
    reply.bucket = index_.unit_of(wanted);
    reply.bucket_version = index_.version(reply.bucket);
    // An odd version is never validated: who would validate the absence meets a Conflict.
    const bool changes = reply.bucket_version % 2 == 1;
    if (changes && may_be_inserted(wanted)) return make_error(ErrorCode::kConflict);
    return read;
  }
  PMSTORE_TRY(const RecordView record, record_at(*found, into, read.copied));
  reply.found = FoundRecord::kWithValue;
  reply.slot = raw(found->slot);
  reply.version = record.version();
  reply.value_bytes = static_cast<uint32_t>(record.value.size());
  reply.size_class = found->size_class;
  read.value = record.value;
  return read;
}

Result<size_t> RecordStore::get(TableId table, std::string_view key,
                                std::span<std::byte> room) const {
  if (room.size() < sizeof(GetReply)) {
    return make_error(ErrorCode::kTooLarge, "no room for the reply");
  }
  const auto value = room.subspan(sizeof(GetReply));
  PMSTORE_TRY(Found found, read(table, key, value));
  const bool fits = value.size() >= found.value.size();
  if (!fits) found.reply.found = FoundRecord::kPlaceOnly;
  std::memcpy(room.data(), &found.reply, sizeof(found.reply));
  if (!fits || found.value.empty()) return sizeof(GetReply);
  if (found.copied) return sizeof(GetReply) + found.value.size();
  std::memcpy(value.data(), found.value.data(), found.value.size());
  return sizeof(GetReply) + found.value.size();
}

Result<RecordView> RecordStore::record_at(IndexEntry entry) const {
  bool copied = false;
  return record_at(entry, {}, copied);
}

Result<RecordView> RecordStore::record_at(IndexEntry entry, std::span<std::byte> into,
                                          bool& copied) const {
  const LockWord before = words_.load(entry.slot);
  const bool reserved = reservations_.at(entry.slot) != nullptr;
  if (before.is_locked() || reserved) return make_error(ErrorCode::kConflict);
  const auto record = checked_record(entry.slot, entry.size_class, before, into, copied);
  // A writer locks the word before it changes the record. So the same unlocked word before and
  // after the copy means that the record did not change meanwhile.
  if (words_.load(entry.slot) != before) return make_error(ErrorCode::kConflict);
  if (!record) {
    note_damage();
    return damaged_record(entry.slot);
  }
  return *record;
}

void RecordStore::prefetch(TableId table, std::span<const std::string_view> keys) const {
  if (is_ordered(table)) return;
  constexpr size_t kTogether = 16;  // the processor waits for about so many lines at a time
  std::array<IndexKey, kTogether> wanted;
  for (; !keys.empty(); keys = keys.subspan(std::min(keys.size(), kTogether))) {
    const size_t count = std::min(keys.size(), kTogether);
    for (size_t i = 0; i < count; ++i) {
      wanted[i] = IndexKey::of(table, keys[i]);
      prefetch_bucket(wanted[i]);
    }
    for (size_t i = 0; i < count; ++i) prefetch_record(wanted[i]);
  }
}

// Small records are only stored, so that a record that is written often is flushed once, by the
// truncation of its redo records. Where only msync makes anything durable, none is flushed here:
// the next commit would have to wait for the disk once more.
void RecordStore::write_in_place(SlotOffset slot, std::span<const std::byte> image) {
  if (is_viewed(slot)) [[unlikely]]
    return write_tombstone_beside_view(slot, image);
  // Rules H5 to H7: whole units, so that no mover has to read what is around the record.
  const size_t unit = persist::padding_unit(image.size(), /*one_sided=*/false, padding_);
  const size_t padded = persist::round_up_to_power(image.size(), unit);
  std::byte* const to = arena_.at(slot);
  alignas(persist::kLineBytes) std::byte block[persist::kXpLineBytes] = {};
  if (padded <= sizeof(block)) {
    std::memcpy(block, image.data(), image.size());
    const bool stored = padded < sizeof(block) || flushed_by_truncation_;
    stored ? memory_.store(to, block, padded) : memory_.write(to, block, padded);
    return;
  }
  if (flushed_by_truncation_) return memory_.store(to, image.data(), image.size());
  // Rule H4: large ones with non-temporal stores.
  const size_t whole = image.size() & ~(unit - 1);
  memory_.write(to, image.data(), whole);
  if (whole == image.size()) return;
  std::memcpy(block, image.data() + whole, image.size() - whole);
  memory_.write(to + whole, block, padded - whole);
}

// The header and the key, which stays the same, and no byte of the value behind them.
void RecordStore::write_tombstone_beside_view(SlotOffset slot, std::span<const std::byte> image) {
  RecordHeader header;
  std::memcpy(&header, image.data(), sizeof(header));
  PMSTORE_CHECK(header.state == RecordState::kTombstone &&
                    image.size() == record_bytes(header.key_bytes(), 0),
                "a commit to a viewed record moves the record");
  memory_.store(arena_.at(slot), image.data(), image.size());
}

void RecordStore::give_up(SlotOffset slot, uint64_t version) {
  const uint64_t above = std::max(version, version_of(slot) + 1);
  words_.store(slot, LockWord::unlocked(std::min(above, LockWord::kVersionMask)));
  give_up_again(slot);
}

void RecordStore::give_up_again(SlotOffset slot) {
  PMSTORE_CHECK(given_up_.insert(raw(slot)).second, "recovery reads each slot once");
}

}  // namespace pmstore::internal
