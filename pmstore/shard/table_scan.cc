#include "pmstore/shard/table_scan.h"

#include <cstring>
#include <string>

namespace pmstore::internal {

namespace {

// Copies the record of `slot`, whose lock word had `version`, into `image`. nullopt when three
// tries found no whole record: the record is locked, changes all the time, or is gone; or it is
// `damaged`, because it is not whole although no writer changes it.
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

}  // namespace

TableScan::Seen TableScan::read_slot(const SlabArena::Slab& slab, SlotOffset slot, TableId table,
                                     std::vector<std::byte>& image,
                                     std::optional<RecordView>& record) const {
  const SlabArena& arena = records_.arena();
  const LockTable& words = records_.words();
  RecordHeader header;
  base::copy_from_shared(&header, arena.at(slot), sizeof(header));
  const LockWord word = words.load(slot);
  // Unused since the slab was claimed, or not a record yet.
  if (word.version() <= slab.base_version || records_.reservations().at(slot)) return Seen::kNone;
  if (records_.is_given_up(slot)) return Seen::kNone;
  const bool live = header.state == RecordState::kLive;
  const bool of_another_table = header.table != raw(table);
  if (word.is_locked() && (!live || of_another_table)) return Seen::kNone;
  // Where the header does not fit the lock word, it is damaged or was copied while it changed: then
  // the whole slot is read.
  const bool readable =
      header.version == word.version() && (live || header.state == RecordState::kTombstone);
  if (readable && of_another_table && records_.catalog().exists(TableId{header.table})) {
    return Seen::kNone;
  }
  const uint64_t stride = kSlotBytes[slab.size_class];
  const uint64_t bytes = record_bytes(header.key_bytes(), header.value_bytes);
  image.resize(readable ? std::min(bytes, stride) : stride);
  bool damaged = false;
  record = copy_whole(arena.at(slot), words, slot, word.version(), image, damaged);
  if (damaged) return Seen::kDamaged;
  if (!record) return words.load(slot).is_locked() ? Seen::kLocked : Seen::kNone;
  const bool wanted = record->live() && record->header->table == raw(table);
  return wanted ? Seen::kRecord : Seen::kNone;
}

namespace {

// A page in a reply, behind its head.
class ReplyPage final : public TableScan::Page {
 public:
  explicit ReplyPage(std::span<std::byte> room) : items_(room) {}
  bool add(const RecordView& record) override {
    const MessageWriter before = items_;
    items_.put(ScanItem{
        static_cast<uint32_t>(record.value.size()), static_cast<uint16_t>(record.key.size()), {}});
    items_.put_bytes(record.key);
    items_.put_bytes(record.value);
    const bool fits = !items_.overflowed();
    if (!fits) items_ = before;
    return fits;
  }
  size_t bytes() const { return items_.bytes(); }

 private:
  MessageWriter items_;
};

}  // namespace

Result<ScanReply> TableScan::page(const ScanRequest& request, Page& page) const {
  constexpr uint32_t kSlotsPerPage = 1 << 16;  // bounds the time of one call
  const auto table = static_cast<TableId>(request.table);
  const TableCatalog& catalog = records_.catalog();
  if (!catalog.exists(table)) return catalog.unknown(table);
  ScanReply reply{};
  uint64_t bytes = sizeof(reply);
  // The first record may take all the room, not only max_bytes: otherwise a large record would end
  // every scan.
  const auto add = [&](const RecordView& record) {
    const uint64_t more = sizeof(ScanItem) + record.key.size() + record.value.size();
    if (reply.count > 0 && bytes + more > request.max_bytes) return false;
    if (!page.add(record)) return false;
    bytes += more;
    ++reply.count;
    return true;
  };
  std::vector<std::byte> image;
  uint32_t visited = 0;
  Status status;
  const auto next = walk(request.cursor * 64, [&](const SlabArena::Slab& slab, SlotOffset slot) {
    if (++visited > kSlotsPerPage) return false;
    std::optional<RecordView> record;
    switch (read_slot(slab, slot, table, image, record)) {
      case Seen::kNone: return true;
      case Seen::kDamaged:
        if (!request.skip_damaged) status = damaged_record(slot);
        ++reply.damaged;
        if (!records_.is_given_up(slot)) records_.note_damage();
        return status.has_value();
      case Seen::kLocked:
        if (reply.count == 0) status = make_error(ErrorCode::kConflict);
        return false;
      case Seen::kRecord:
        if (add(*record)) return true;
        if (reply.count == 0) status = larger_than_a_page(record->bytes());
        return false;
    }
    return true;
  });
  if (!status) return status.error();
  if (next) reply.cursor = raw(*next) / 64;
  return reply;
}

Result<size_t> TableScan::page(const ScanRequest& request, std::span<std::byte> room) const {
  if (room.size() < sizeof(ScanReply)) {
    return make_error(ErrorCode::kTooLarge, "no room for the reply");
  }
  ReplyPage records(room.subspan(sizeof(ScanReply)));
  PMSTORE_TRY(const ScanReply reply, page(request, records));
  std::memcpy(room.data(), &reply, sizeof(reply));
  return sizeof(reply) + records.bytes();
}

std::optional<IndexKey> TableScan::indexed_key(SlotOffset slot, TableId table,
                                               KeyRoom& room) const {
  const SlabArena& arena = records_.arena();
  // Since the caller found the slot, its frame may have gone back to the pool.
  const auto slab = arena.slab_at(slot);
  if (!slab) return std::nullopt;
  RecordHeader header;
  base::copy_from_shared(&header, arena.at(slot), sizeof(header));
  // A header that was copied while it changed, or that the medium has changed, may say anything.
  const uint16_t key_bytes = header.key_bytes();
  if (key_bytes > kMaxKeyBytes || record_bytes(key_bytes, 0) > kSlotBytes[slab->size_class]) {
    return std::nullopt;
  }
  base::copy_from_shared(room, arena.at(slot) + sizeof(header), key_bytes);
  const IndexKey key = IndexKey::of(table, {room, key_bytes});
  if (!records_.index().contains(key, slot)) return std::nullopt;
  return key;
}

Result<TableUsageReply> TableScan::usage(TableId table, uint64_t cursor) const {
  if (!records_.catalog().exists(table)) return records_.catalog().unknown(table);
  TableUsageReply usage{};
  KeyRoom room;
  const auto count = [&](SlotOffset slot, const SlabArena::Slab& slab, const RecordHeader& header) {
    const bool of_table = header.table == raw(table) && !records_.reservations().at(slot) &&
                          indexed_key(slot, table, room);
    if (!of_table) return true;
    ++usage.records;
    usage.key_bytes += header.key_bytes();
    usage.value_bytes += header.value_bytes;
    usage.slot_bytes += kSlotBytes[slab.size_class];
    return true;
  };
  usage.cursor = visit(cursor, count);
  return usage;
}

Result<TableUsageReply> TableScan::ordered_usage(TableId table) const {
  const OrderedIndex* index = records_.index().ordered(table);
  if (index == nullptr || !records_.catalog().exists(table)) {
    return records_.catalog().unknown(table);
  }
  TableUsageReply usage{};
  usage.records = index->size();
  return usage;
}

}  // namespace pmstore::internal
