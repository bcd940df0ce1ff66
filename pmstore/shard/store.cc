#include "pmstore/shard/store.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "base/atomic_copy.h"
#include "persist/padding.h"
#include "pmstore/layout/record.h"

namespace pmstore::internal {

namespace {

uint64_t largest_entry_room(uint64_t ring_bytes) {
  const uint64_t data_bytes = ring_bytes - log::kRingHeaderBytes;
  return log::entry_room(log::max_payload_bytes(data_bytes));
}

// Copies the record of `slot`, of `version`, into `image`; nothing if in three tries it was never
// seen whole: it is locked, changes all the time, or is gone; or `damaged`, when no writer changes
// it.
std::optional<RecordView> copy_whole(const std::byte* from, const LockTable& words, SlotOffset slot,
                                     uint64_t version, std::span<std::byte> image, bool& damaged) {
  damaged = false;
  for (int attempt = 0; attempt < 3; ++attempt) {
    const LockWord before = words.load(slot);
    base::copy_from_shared(image.data(), from, image.size());
    const auto record = check_record(image, slot);
    const bool unchanged = !before.is_locked() && words.load(slot) == before;
    if (record && unchanged && before.version() == record->version()) return record;
    damaged = !record && unchanged && before.version() == version;
  }
  return std::nullopt;
}

Error larger_than_a_page(uint64_t bytes) {
  return make_error(ErrorCode::kTooLarge,
                    "a record of " + std::to_string(bytes) + " bytes does not fit in a scan page");
}

Error damaged_record(SlotOffset slot) {
  return make_error(ErrorCode::kDamaged,
                    "the record at offset " + std::to_string(raw(slot)) +
                        " of the records fails its checksum: the medium has changed it; write or "
                        "delete its key, and look at the pool with `pmstore pool check`");
}

}  // namespace

Error damaged_key(SlotOffset slot) {
  return make_error(ErrorCode::kDamaged,
                    "the record at offset " + std::to_string(raw(slot)) +
                        " of the records is damaged and may be this key's: the medium has changed "
                        "it; start the server again, which gives up damaged records and counts "
                        "them, and write what is missing");
}

Store::Store(persist::Pool& pool, TableCatalog catalog, SlabArena arena, LockTable words,
             Index index)
    : pool_(pool),
      catalog_(std::move(catalog)),
      arena_(std::move(arena)),
      words_(std::move(words)),
      index_(std::move(index)) {
  arena_.set_version_source([this](SlotOffset slot) { return version_of(slot); });
  const uint64_t room = largest_entry_room(catalog_.header().ring_bytes);
  redo_memory_ = std::make_unique<std::byte[]>(room + persist::kLineBytes);
  const auto address = reinterpret_cast<uintptr_t>(redo_memory_.get());
  redo_room_ = {redo_memory_.get() + (persist::round_up(address, persist::kLineBytes) - address),
                room};
  plan_.reserve(64);
}

Store::~Store() = default;

uint64_t Store::version_of(SlotOffset slot) const {
  return std::max(words_.load(slot).version(), arena_.base_version(slot));
}

bool Store::record_matches(SlotOffset slot, TableId table, std::string_view key) const {
  RecordHeader header;
  const std::byte* at = arena_.at(slot);
  base::copy_from_shared(&header, at, sizeof(header));
  if (header.state != RecordState::kLive || header.table != raw(table) ||
      header.key_bytes != key.size()) {
    return false;
  }
  std::byte stored[kMaxKeyBytes];
  base::copy_from_shared(stored, at + sizeof(header), key.size());
  return std::memcmp(stored, key.data(), key.size()) == 0;
}

// What the index names and no writer has locked is a live record of its lock word's version.
bool Store::is_damaged(BucketEntry entry) const {
  const LockWord before = words_.load(entry.slot());
  if (before.is_locked() || reservation(entry.slot())) return false;
  const bool sound = checked_copy(entry.slot(), entry.size_class(), before).has_value();
  return !sound && words_.load(entry.slot()) == before;
}

std::optional<RecordView> Store::checked_copy(SlotOffset slot, uint8_t size_class,
                                              LockWord word) const {
  RecordHeader header;
  const std::byte* at = arena_.at(slot);
  base::copy_from_shared(&header, at, sizeof(header));
  const uint64_t bytes = record_bytes(header.key_bytes, header.value_bytes);
  if (bytes > kSlotBytes[size_class]) return std::nullopt;
  if (record_.size() < bytes) record_.resize(bytes);
  const std::span<std::byte> image(record_.data(), bytes);
  base::copy_from_shared(image.data(), at, bytes);
  const auto record = check_record(image, slot);
  if (!record || !record->live() || record->version() != word.version()) return std::nullopt;
  return record;
}

const Store::Reservation* Store::reservation(SlotOffset slot) const {
  if (pending_.empty()) return nullptr;
  const auto found = pending_.find(raw(slot));
  return found == pending_.end() ? nullptr : &found->second;
}

std::optional<Found> Store::find(TableId table, std::string_view key, KeyHash hash,
                                 std::optional<SlotOffset>& damaged) const {
  const BucketEntry entry = index_.find(hash, [&](BucketEntry candidate) {
    // A reserved slot holds no record of its key yet.
    if (const Reservation* reserved = reservation(candidate.slot())) {
      return reserved->table == table && reserved->key == key;
    }
    if (record_matches(candidate.slot(), table, key)) return true;
    if (is_damaged(candidate)) damaged = candidate.slot();
    return false;
  });
  if (!entry.used()) return std::nullopt;
  return Found{entry.slot(), entry.size_class()};
}

Result<size_t> Store::get(TableId table, std::string_view key, std::span<std::byte> room) const {
  if (!catalog_.exists(table)) return catalog_.unknown(table);
  const KeyHash hash = hash_key(table, key);
  GetReply reply{};
  reply.bucket = index_.bucket_of(hash);
  reply.bucket_version = index_.version(reply.bucket);
  if (room.size() < sizeof(reply)) return make_error(ErrorCode::kTooLarge, "no room for the reply");
  std::optional<SlotOffset> damaged;
  const auto found = find(table, key, hash, damaged);
  if (!found) {
    if (damaged) return damaged_key(*damaged);
    // An odd version could never be validated: the bucket is being changed by a client's insert.
    if (reply.bucket_version % 2 == 1) return make_error(ErrorCode::kConflict);
    std::memcpy(room.data(), &reply, sizeof(reply));
    return sizeof(reply);
  }
  const LockWord before = words_.load(found->slot);
  if (before.is_locked() || reservation(found->slot)) return make_error(ErrorCode::kConflict);
  const auto record = checked_copy(found->slot, found->size_class, before);
  // A writer of a record holds its lock, so the same unlocked word on both sides means that nobody
  // has changed the record meanwhile.
  if (words_.load(found->slot) != before) return make_error(ErrorCode::kConflict);
  if (!record) return damaged_record(found->slot);
  reply.slot = raw(found->slot);
  reply.version = record->version();
  reply.value_bytes = static_cast<uint32_t>(record->value.size());
  reply.found = 1;
  reply.size_class = found->size_class;
  if (room.size() - sizeof(reply) < record->value.size()) {
    return make_error(ErrorCode::kTooLarge, "the value has " + std::to_string(reply.value_bytes) +
                                                " bytes, more than the room for the reply");
  }
  std::memcpy(room.data(), &reply, sizeof(reply));
  std::memcpy(room.data() + sizeof(reply), record->value.data(), record->value.size());
  return sizeof(reply) + record->value.size();
}

Store::Seen Store::look_at(const SlabArena::Slab& slab, SlotOffset slot, TableId table,
                           std::vector<std::byte>& image, std::optional<RecordView>& record) const {
  RecordHeader header;
  base::copy_from_shared(&header, arena_.at(slot), sizeof(header));
  const LockWord word = words_.load(slot);
  // Unused since the slab was claimed, or damaged before the start, which said so.
  if (word.version() <= slab.base_version || reservation(slot)) return Seen::kNone;
  if (given_up_.contains(raw(slot))) return Seen::kNone;
  const bool live = header.state == RecordState::kLive;
  const bool of_another_table = header.table != raw(table);
  if (word.is_locked() && (!live || of_another_table)) return Seen::kNone;
  // Otherwise the header may be damaged, or older than the lock word: then the whole slot is
  // looked at.
  const bool readable =
      header.version == word.version() && (live || header.state == RecordState::kTombstone);
  if (readable && of_another_table && catalog_.exists(TableId{header.table})) return Seen::kNone;
  const uint64_t stride = kSlotBytes[slab.size_class];
  const uint64_t bytes = record_bytes(header.key_bytes, header.value_bytes);
  image.resize(readable ? std::min(bytes, stride) : stride);
  bool damaged = false;
  record = copy_whole(arena_.at(slot), words_, slot, word.version(), image, damaged);
  if (damaged) return Seen::kDamaged;
  if (!record) return words_.load(slot).is_locked() ? Seen::kLocked : Seen::kNone;
  const bool wanted = record->live() && record->header->table == raw(table);
  return wanted ? Seen::kRecord : Seen::kNone;
}

Result<size_t> Store::scan(const ScanRequest& request, std::span<std::byte> room) const {
  constexpr uint32_t kSlotsPerCall = 1 << 16;  // bounds the time of one call
  const auto table = static_cast<TableId>(request.table);
  if (!catalog_.exists(table)) return catalog_.unknown(table);
  if (room.size() < sizeof(ScanReply))
    return make_error(ErrorCode::kTooLarge, "no room for the reply");
  // A page ends at max_bytes, but its first record may take the whole room: or a large one could
  // never be passed.
  MessageWriter items(room.subspan(sizeof(ScanReply)));
  ScanReply reply{};
  std::vector<std::byte> image;
  uint64_t position = request.cursor * 64;  // the first slot that has not been looked at
  uint32_t looked_at = 0;
  auto slab = arena_.slab_from(
      static_cast<uint32_t>(std::min<uint64_t>(position / kChunkBytes, UINT32_MAX)));
  for (; slab; slab = arena_.slab_from(slab->first_chunk + run_chunks_of(slab->size_class))) {
    const uint32_t slots = slots_per_slab(slab->size_class);
    const uint64_t first = raw(arena_.slot_of(*slab, 0));
    const uint64_t stride = kSlotBytes[slab->size_class];
    for (uint64_t i = position > first ? (position - first + stride - 1) / stride : 0; i < slots;
         ++i) {
      const SlotOffset slot = arena_.slot_of(*slab, static_cast<uint32_t>(i));
      if (++looked_at > kSlotsPerCall) {
        reply.cursor = raw(slot) / 64;
        std::memcpy(room.data(), &reply, sizeof(reply));
        return sizeof(reply) + items.bytes();
      }
      std::optional<RecordView> record;
      const Seen seen = look_at(*slab, slot, table, image, record);
      if (seen == Seen::kDamaged && !request.skip_damaged) return damaged_record(slot);
      reply.damaged += seen == Seen::kDamaged ? 1 : 0;
      if (seen == Seen::kNone || seen == Seen::kDamaged) continue;
      const bool locked = seen == Seen::kLocked;
      const MessageWriter before = items;
      bool fits = false;
      if (!locked) {
        items.put(ScanItem{static_cast<uint32_t>(record->value.size()),
                           static_cast<uint8_t>(record->key.size()),
                           {}});
        items.put_bytes(record->key);
        items.put_bytes(record->value);
        const size_t page_bytes = sizeof(ScanReply) + items.bytes();
        fits = !items.overflowed() && (reply.count == 0 || page_bytes <= request.max_bytes);
      }
      if (!fits) {
        items = before;
        if (reply.count == 0 && locked) return make_error(ErrorCode::kConflict);
        if (reply.count == 0) return larger_than_a_page(record->bytes());
        reply.cursor = raw(slot) / 64;
        std::memcpy(room.data(), &reply, sizeof(reply));
        return sizeof(reply) + items.bytes();
      }
      ++reply.count;
    }
    position = 0;
  }
  std::memcpy(room.data(), &reply, sizeof(reply));
  return sizeof(reply) + items.bytes();
}

// In place nothing needs to be durable before the redo record goes: truncation flushes what its
// entries say. So small records are only stored, and a record that is written often is flushed
// once.
void Store::write_record(SlotOffset slot, std::span<const std::byte> image) {
  // Rules H5 to H7: whole units, so that no mover has to read what is around the record.
  const size_t unit = persist::padding_unit(image.size(), /*one_sided=*/false);
  const size_t padded = persist::round_up(image.size(), unit);
  std::byte* const to = arena_.at(slot);
  alignas(persist::kLineBytes) std::byte block[persist::kXpLineBytes] = {};
  if (padded <= sizeof(block)) {
    std::memcpy(block, image.data(), image.size());
    padded < sizeof(block) ? memory().store(to, block, padded) : memory().write(to, block, padded);
    return;
  }
  // Rule H4: large ones with non-temporal stores.
  const size_t whole = persist::round_down(image.size(), unit);
  memory().write(to, image.data(), whole);
  if (whole == image.size()) return;
  std::memcpy(block, image.data() + whole, image.size() - whole);
  memory().write(to + whole, block, padded - whole);
}

Status Store::flush_entries(log::Ring& ring, uint64_t through_lsn) {
  // Records that are written often are in many entries; their lines are flushed once.
  std::vector<std::pair<uint64_t, uint64_t>> places;  // slot, bytes
  const bool whole = ring.for_each_entry([&](const log::EntryView& entry) {
    if (entry.lsn >= through_lsn) return;
    // Under lock discipline rnic the client may write its ring meanwhile: what is checked is what
    // is used.
    entry_.resize(entry.payload.size());
    base::copy_from_shared(entry_.data(), entry.payload.data(), entry_.size());
    auto redo = RedoReader::open(entry_, catalog_.header().pool);
    if (!redo) return;  // no transaction; see replay_entry()
    const size_t first = places.size();
    while (auto write = redo->next()) {
      // What does not fit its slot was never put there.
      const auto slab = arena_.slab_at(write->slot);
      if (!slab || write->image.size() > kSlotBytes[slab->size_class]) continue;
      places.emplace_back(raw(write->slot), write->image.size());
    }
    if (redo->malformed()) places.resize(first);
  });
  if (!whole) {
    return make_error(ErrorCode::kBadPool, "a client's redo ring is damaged");
  }
  std::sort(places.begin(), places.end(), std::greater<>());  // per slot, the longest first
  uint64_t last = UINT64_MAX;
  for (const auto& [slot, bytes] : places) {
    if (slot != last) memory().flush(arena_.at(static_cast<SlotOffset>(slot)), bytes);
    last = slot;
  }
  return {};
}

Status Store::truncate_through(log::Ring& ring, uint64_t through_lsn) {
  uint64_t start = ring.position().start_lsn;
  uint64_t expired_below = ring.expired_below_sequence();
  ring.for_each_entry([&](const log::EntryView& entry) {
    if (entry.lsn >= through_lsn) return;
    start = entry.next_lsn;
    expired_below = std::max(expired_below, entry.sequence + 1);
  });
  if (start == ring.position().start_lsn) return {};
  PMSTORE_TRY_STATUS(flush_entries(ring, start));
  auto durable = memory().drain();
  if (!durable) {
    failed_ = true;
    return durable.error();
  }
  ring.for_each_entry([&](const log::EntryView& entry) {
    if (entry.lsn < start) outcomes_->truncated(index_of(ring), entry.sequence);
  });
  return ring.truncate(start, expired_below);
}

Status Store::close() {
  for (log::Ring& ring : rings_) {
    PMSTORE_TRY_STATUS(flush_entries(ring, UINT64_MAX));
  }
  auto durable = memory().drain();
  if (!durable) return durable.error();
  return catalog_.mark_clean();
}

}  // namespace pmstore::internal
