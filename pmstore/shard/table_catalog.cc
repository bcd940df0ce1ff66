#include "pmstore/shard/table_catalog.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/checksum.h"
#include "base/random.h"
#include "base/size_text.h"
#include "log/log_store.h"
#include "log/ring.h"
#include "persist/padding.h"
#include "pmstore/layout/frame_layout.h"
#include "pmstore/layout/lock_word.h"

namespace pmstore {

namespace internal {

namespace {

constexpr size_t kEntryWordBytes = sizeof(uint64_t);
static_assert(offsetof(TableEntry, name) == kEntryWordBytes);

uint32_t header_crc(const CatalogHeader& header) {
  const auto bytes = std::as_bytes(std::span(&header, 1)).first(kCatalogCrcBytes);
  return base::crc32c(bytes.subspan(offsetof(CatalogHeader, version)), 0);
}

// With crc as its seed, the rest of one generation does not fit the begin of another.
uint32_t more_crc(CatalogHeader header) {
  header.more_crc = 0;
  const auto rest = std::as_bytes(std::span(&header, 1)).subspan(kCatalogCrcBytes);
  return base::crc32c(rest, header.crc);
}

// Of the header that is written next, whose other checksum depends on it.
uint32_t seal(CatalogHeader& header) {
  header.crc = header_crc(header);
  header.more_crc = more_crc(header);
  return header.crc;
}

// Of any version, also one of a later release.
bool is_catalog_header(const CatalogHeader& header) {
  return header.magic == kCatalogMagic && header.crc == header_crc(header);
}

uint32_t entry_crc(const TableEntry& entry, uint64_t pool) {
  const size_t end = entry.kind == EntryKind::kDroppedTable ? kEntryWordBytes : sizeof(entry);
  const auto bytes = std::as_bytes(std::span(&entry, 1)).first(end);
  return base::crc32c(bytes.subspan(offsetof(TableEntry, id)), static_cast<uint32_t>(pool | 1));
}

bool entry_valid(const TableEntry& entry, uint64_t pool) {
  const bool named = entry.kind == EntryKind::kTable && entry.name_bytes > 0 &&
                     entry.name_bytes <= kMaxTableNameBytes;
  const bool dropped = entry.kind == EntryKind::kDroppedTable && entry.name_bytes == 0;
  return entry.id != 0 && (named || dropped) && entry.crc == entry_crc(entry, pool);
}

uint64_t first_word(const TableEntry& entry) {
  uint64_t word;
  std::memcpy(&word, &entry, kEntryWordBytes);
  return word;
}

bool entry_unused(const TableEntry& entry) {
  // Not byte by byte: a start looks at all 4,080 entries.
  static constexpr TableEntry kZero{};
  return std::memcmp(&entry, &kZero, sizeof(entry)) == 0;
}

bool log_valid(const CatalogHeader& header, const persist::Memory& memory) {
  if (header.version < kFirstVersionWithLog) return header.ring_count > 0;
  return header.log_offset % persist::kXpLineBytes == 0 &&
         header.log_bytes % persist::kXpLineBytes == 0 && header.log_bytes >= log::kMinRingBytes &&
         memory.contains(header.log_offset, header.log_bytes);
}

bool rings_valid(const CatalogHeader& header, const persist::Memory& memory) {
  if (header.version >= kFirstVersionWithRingExtents && header.rings_offset == 0) {
    return header.ring_count == 0 ||
           (header.ring_count <= kMostRings && header.ring_bytes >= log::kMinRingBytes &&
            header.ring_bytes <= memory.bytes() && header.ring_bytes % persist::kXpLineBytes == 0);
  }
  return memory.contains(header.rings_offset, header.ring_count * header.ring_bytes);
}

bool frames_valid(const CatalogHeader& header) {
  if (header.version < kFirstVersionWithFrames) return true;
  return header.more_crc == more_crc(header) && std::has_single_bit(header.frame_chunks) &&
         header.frame_chunks <= kMostFrameBytes / kChunkBytes &&
         header.freed_version <= LockWord::kVersionMask;
}

bool header_valid(const CatalogHeader& header, const persist::Memory& memory) {
  return is_catalog_header(header) && header.version >= kOldestCatalogVersion &&
         header.version <= kCatalogVersion && log_valid(header, memory) &&
         header.highest_table <= kMaxTableIds && rings_valid(header, memory) &&
         frames_valid(header) && memory.contains(header.records_offset, header.records_bytes) &&
         memory.contains(header.tables_offset, header.tables_bytes) &&
         header.tables_bytes % kTableEntryBytes == 0 && header.tables_bytes <= kMoreTablesBytes;
}

}  // namespace

persist::TwoCopies<CatalogHeader> TableCatalog::header_copies() const {
  persist::Memory& memory = pool_->memory();
  return {memory, memory.offset_of(pool_->root().data()), kCatalogCopyBytes};
}

Result<TableCatalog> TableCatalog::load(persist::Pool& pool) {
  PMSTORE_TRY(TableCatalog catalog, load_any(pool));
  if (!catalog.is_earlier()) return catalog;
  return make_error(ErrorCode::kVersionMismatch,
                    catalog.path() +
                        (catalog.header_.version < kCatalogVersion
                             ? ": an earlier release of pmstore made this pool"
                             : ": the conversion of this pool is not finished") +
                        "; run `pmstore pool convert " + catalog.path() + "`");
}

Result<TableCatalog> TableCatalog::load_any(persist::Pool& pool) {
  TableCatalog catalog(pool);
  const auto is_valid = [&](const CatalogHeader& header) -> Result<bool> {
    const bool known = header.version < kFirstVersionWithLog ||
                       (header.version <= kCatalogVersion && (header.features & ~kConverting) == 0);
    if (!is_catalog_header(header) || known) return header_valid(header, pool.memory());
    return make_error(
        ErrorCode::kVersionMismatch,
        pool.info().path + ": a later release of pmstore has opened this pool; use that one");
  };
  PMSTORE_TRY(const auto found, catalog.header_copies().read(is_valid));
  if (!found) {
    return make_error(ErrorCode::kBadPool,
                      pool.info().path +
                          ": the store's catalog is damaged or was never written; "
                          "restore the pool from a backup, or create a new one");
  }
  catalog.header_ = found->header;
  catalog.both_copies_ = found->both_valid;
  PMSTORE_TRY_STATUS(catalog.load_tables());
  return catalog;
}

std::byte* TableCatalog::entry_at(size_t position) const {
  PMSTORE_CHECK(position < most_tables(), "behind the entries there are records or nothing");
  if (position < kRootTableEntries) {
    return pool_->root().data() + kTableEntriesOffset + position * kTableEntryBytes;
  }
  return pool_->memory().at(header_.tables_offset +
                            (position - kRootTableEntries) * kTableEntryBytes);
}

// Records name their table by its id: if an id were forgotten, the next table would get the id and
// the records.
Status TableCatalog::load_tables() {
  bool ended = false;
  for (size_t i = 0; i < most_tables(); ++i) {
    TableEntry entry;
    std::memcpy(&entry, entry_at(i), sizeof(entry));
    if (!ended && entry_valid(entry, header_.pool) && load_table(entry, i)) continue;
    const bool half_made = !ended && i >= header_.table_count;
    ended = true;
    if (half_made || (entry_unused(entry) && i >= header_.table_count)) continue;
    return make_error(ErrorCode::kBadPool,
                      pool_->info().path + ": entry " + std::to_string(i + 1) +
                          " of the store's table of tables is damaged; restore the pool from a "
                          "backup, or create a new one");
  }
  return {};
}

bool TableCatalog::load_table(const TableEntry& entry, size_t position) {
  const bool dropped = entry.kind == EntryKind::kDroppedTable;
  if (header_.version < kFirstVersionWithDrops && (dropped || entry.id != position + 1))
    return false;
  const auto id = static_cast<TableId>(entry.id);
  const std::string name(entry.name, entry.name_bytes);
  if (!dropped && (exists(id) || find(name))) return false;
  header_.highest_table = std::max(header_.highest_table, number_of(id));
  entries_.push_back(dropped ? TableId{} : id);
  if (!dropped) {
    tables_.push_back({id, name});
    exists_[entry.id] = true;
  }
  return true;
}

Error TableCatalog::unknown(TableId table) const {
  return make_error(ErrorCode::kUnknownTable,
                    was_dropped(table)
                        ? "the table was dropped; open the one that is meant by its name"
                        : "there is no table with this number; open it by its name");
}

Error table_is_lost(const std::string& path, uint16_t table) {
  return make_error(ErrorCode::kBadPool,
                    path + ": there are records of table " + std::to_string(table) +
                        ", which the store's table of tables does not have any more; restore the "
                        "pool from a backup, or create a new one");
}

// Unlike those of the rings.
uint32_t TableCatalog::log_salt() const {
  return static_cast<uint32_t>(base::mix64(~header_.pool));
}

Result<log::Ring> TableCatalog::open_log() const {
  PMSTORE_TRY(auto opened,
              log::Ring::open(pool_->memory(), header_.log_offset, header_.log_bytes, log_salt()));
  opened.set_padding(pool_->info().padding);
  return opened;
}

Status TableCatalog::format_log(uint64_t expired_below_sequence) const {
  PMSTORE_TRY_STATUS(log::Ring::format(pool_->memory(), header_.log_offset, header_.log_bytes,
                                       log_salt(), 0, expired_below_sequence));
  return {};
}

std::optional<TableId> TableCatalog::find(std::string_view name) const {
  for (const TableInfo& table : tables_) {
    if (table.name == name) return table.id;
  }
  return std::nullopt;
}

Status TableCatalog::store_first_word(size_t position, const TableEntry& entry) {
  persist::Memory& memory = pool_->memory();
  std::byte* const at = entry_at(position);
  memory.store64(reinterpret_cast<uint64_t*>(at), first_word(entry));
  memory.flush(at, kEntryWordBytes);
  auto durable = memory.drain();
  if (!durable) return durable.error();
  return {};
}

Result<TableId> TableCatalog::create_table(std::string_view name, TableKind kind) {
  PMSTORE_TRY_STATUS(check_table_name(name));
  PMSTORE_CHECK(!find(name), "the caller has looked for it");
  const auto unused = std::find(entries_.begin(), entries_.end(), TableId{});
  const auto position = static_cast<size_t>(unused - entries_.begin());
  if (position == most_tables()) {
    return make_error(ErrorCode::kFull, "this pool has room for " + std::to_string(most_tables()) +
                                            " tables; drop one that is not needed any more");
  }
  if (header_.highest_table == kMaxTableIds) {
    return make_error(ErrorCode::kFull,
                      "this pool has had all the " + std::to_string(kMaxTableIds) +
                          " tables that it can number; copy its records into a new pool");
  }
  CatalogHeader next = header_;
  ++next.highest_table;
  TableEntry entry{};
  entry.id = raw(table_id(next.highest_table, kind));
  entry.kind = EntryKind::kTable;
  entry.name_bytes = static_cast<uint8_t>(name.size());
  std::memcpy(entry.name, name.data(), name.size());
  entry.crc = entry_crc(entry, header_.pool);
  const auto id = static_cast<TableId>(entry.id);
  if (position < entries_.size()) {
    PMSTORE_TRY_STATUS(reuse_entry(position, entry));
    header_.highest_table = next.highest_table;
    entries_[position] = id;
  } else {
    persist::Memory& memory = pool_->memory();
    memory.write(entry_at(position), &entry, sizeof(entry));
    auto durable = memory.drain();
    if (!durable) return durable.error();
    // The header counts it before a client learns its id.
    next.table_count = static_cast<uint32_t>(entries_.size() + 1);
    PMSTORE_TRY_STATUS(write_header(next));
    entries_.push_back(id);
  }
  PMSTORE_CHECK(!exists_[raw(id)], "a table's id is never used twice");
  tables_.push_back({id, std::string(name)});
  exists_[raw(id)] = true;
  return id;
}

// The first word makes the entry the new table's, and is stored only once the rest is durable. The
// old table's id is lost with the old first word; the header has had a highest id of at least this
// since the drop.
Status TableCatalog::reuse_entry(size_t position, const TableEntry& entry) {
  persist::Memory& memory = pool_->memory();
  memory.write(entry_at(position) + kEntryWordBytes,
               std::as_bytes(std::span(&entry, 1)).data() + kEntryWordBytes,
               sizeof(entry) - kEntryWordBytes);
  auto durable = memory.drain();
  if (!durable) return durable.error();
  return store_first_word(position, entry);
}

Status TableCatalog::drop_table(TableId table) {
  PMSTORE_CHECK(exists(table), "the caller has found it");
  // From here on a record of an unknown table is not damage, and the header's highest id is at
  // least this table's, which so far only the entry may have had.
  CatalogHeader next = header_;
  ++next.tables_dropped;
  PMSTORE_TRY_STATUS(write_header(next));
  const auto position =
      static_cast<size_t>(std::find(entries_.begin(), entries_.end(), table) - entries_.begin());
  PMSTORE_CHECK(position < entries_.size(), "every table has an entry");
  TableEntry entry{};
  entry.id = raw(table);
  entry.kind = EntryKind::kDroppedTable;
  entry.crc = entry_crc(entry, header_.pool);
  // The table may not be used from here on, whether the word becomes durable or not.
  exists_[raw(table)] = false;
  std::erase_if(tables_, [&](const TableInfo& info) { return info.id == table; });
  PMSTORE_TRY_STATUS(store_first_word(position, entry));
  entries_[position] = TableId{};
  return {};
}

Status TableCatalog::make_found_durable() {
  // Before its successor is written: else a crash could lose both.
  persist::Memory& memory = pool_->memory();
  const size_t in_root = std::min<size_t>(entries_.size() + 1, kRootTableEntries);
  memory.flush(pool_->root().data(), kTableEntriesOffset + in_root * kTableEntryBytes);
  if (entries_.size() >= kRootTableEntries && header_.tables_bytes > 0) {
    const size_t behind = std::min(entries_.size() + 1, most_tables()) - kRootTableEntries;
    memory.flush(entry_at(kRootTableEntries), behind * kTableEntryBytes);
  }
  PMSTORE_TRY(header_durable_, memory.drain());
  return {};
}

Result<persist::Persisted> TableCatalog::begin_epoch() {
  PMSTORE_CHECK(!is_earlier(), "a server opens no pool that must be converted");
  PMSTORE_TRY_STATUS(make_found_durable());
  CatalogHeader next = header_;
  ++next.epoch;
  next.clean = 0;
  next.table_count = static_cast<uint32_t>(entries_.size());
  PMSTORE_TRY_STATUS(write_header(next));
  return *header_durable_;
}

Status TableCatalog::mark_clean(persist::Persisted /*in_place*/, uint32_t last_session) {
  PMSTORE_CHECK(last_session <= header_.sessions, "a number is counted before it is given out");
  CatalogHeader next = header_;
  next.clean = 1;
  next.sessions = last_session;
  return write_header(next);
}

Status TableCatalog::count_sessions(uint32_t through) {
  PMSTORE_CHECK(through > header_.sessions, "sessions are numbered upwards");
  CatalogHeader next = header_;
  next.sessions = through;
  return write_header(next);
}

Result<persist::Persisted> TableCatalog::count_freed_version(uint64_t version) {
  CatalogHeader next = header_;
  next.freed_version = std::max(next.freed_version, version);
  PMSTORE_TRY_STATUS(write_header(next));
  return *header_durable_;
}

Status TableCatalog::write_first_header() {
  PMSTORE_TRY(header_durable_, header_copies().write_first(header_, seal));
  return {};
}

Status TableCatalog::write_header(CatalogHeader next) {
  PMSTORE_CHECK(header_durable_, "what load() has found is durable");
  PMSTORE_TRY(header_durable_, header_copies().write(*header_durable_, next, seal));
  header_ = next;
  return {};
}

}  // namespace internal

}  // namespace pmstore
