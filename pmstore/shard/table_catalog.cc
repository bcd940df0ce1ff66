#include "pmstore/shard/table_catalog.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/checksum.h"
#include "base/random.h"
#include "base/size_text.h"
#include "log/log_store.h"
#include "log/ring.h"
#include "persist/padding.h"
#include "pmstore/layout/slab_layout.h"

namespace pmstore {

namespace internal {

namespace {

constexpr size_t kEntryWordBytes = sizeof(uint64_t);
static_assert(offsetof(TableEntry, name) == kEntryWordBytes);

uint32_t header_crc(const CatalogHeader& header) {
  const auto bytes = std::as_bytes(std::span(&header, 1));
  return base::crc32c(bytes.subspan(offsetof(CatalogHeader, version)), 0);
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
  const auto bytes = std::as_bytes(std::span(&entry, 1));
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
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

bool header_valid(const CatalogHeader& header, const persist::Memory& memory) {
  return is_catalog_header(header) && header.version >= kOldestCatalogVersion &&
         header.version <= kCatalogVersion && log_valid(header, memory) &&
         header.highest_table <= kMaxTableIds && rings_valid(header, memory) &&
         memory.contains(header.records_offset, header.records_bytes) &&
         memory.contains(header.tables_offset, header.tables_bytes) &&
         header.tables_bytes % kTableEntryBytes == 0 && header.tables_bytes <= kMoreTablesBytes;
}

}  // namespace

namespace {

uint64_t bytes_of_ring(const persist::Pool& pool, uint64_t wanted) {
  if (wanted != 0) return persist::round_up(wanted, persist::kXpLineBytes);
  // From 256 MiB on, a transaction may hold the largest value (it takes a little under half a
  // ring).
  constexpr uint64_t kHoldsLargestValue = 2304 << 10;
  const uint64_t pool_bytes = pool.info().bytes;
  const uint64_t least = pool_bytes >= (240u << 20) ? kHoldsLargestValue : 64 << 10;
  const uint64_t bytes = std::clamp<uint64_t>(pool_bytes / 128, least, 4 << 20);
  return persist::round_up(bytes, persist::kXpLineBytes);
}

// What a new pool gives to the shard log.
uint64_t shard_log_bytes(const persist::Pool& pool, uint64_t wanted) {
  if (wanted != 0) return persist::round_up(wanted, persist::kXpLineBytes);
  // From 256 MiB on it holds a transaction with the largest value.
  constexpr uint64_t kShare = 32;
  constexpr uint64_t kLeast = 64 << 10;
  constexpr uint64_t kMost = 16 << 20;
  const uint64_t bytes = std::clamp(pool.info().bytes / kShare, kLeast, kMost);
  return persist::round_up(bytes, persist::kXpLineBytes);
}

// What a new pool gives to logs.
uint64_t log_area_bytes(const persist::Pool& pool, uint64_t wanted) {
  if (wanted != FormatOptions::kDefaultLogBytes) return wanted;
  constexpr uint64_t kLeastPool = 64u << 20;
  constexpr uint64_t kShare = 8;
  if (pool.info().bytes < kLeastPool) return 0;
  return persist::round_down(pool.info().bytes / kShare, persist::kXpLineBytes);
}

// Room that file data gets, zero and not yet formatted.
Status make_file_room(persist::Pool& pool, uint64_t wanted) {
  if (wanted == 0) return {};
  const uint64_t bytes = persist::round_up(wanted, persist::kXpLineBytes);
  if (bytes > pool.largest_free_extent()) {
    return make_error(ErrorCode::kFull, "the pool has no room for " + base::size_text(bytes) +
                                            " of file data: at most " +
                                            base::size_text(pool.largest_free_extent()) +
                                            " are left beside client rings and logs");
  }
  PMSTORE_TRY_STATUS(pool.allocate_extent(persist::ExtentKind::kFileData, bytes));
  return {};
}

}  // namespace

Status TableCatalog::format(persist::Pool& pool, const FormatOptions& options) {
  PMSTORE_TRY_STATUS(check_format(options));
  TableCatalog catalog(pool);
  CatalogHeader& header = catalog.header_;
  header.magic = kCatalogMagic;
  header.version = kCatalogVersion;
  header.pool = options.identity != 0 ? options.identity : base::random_identity();
  header.ring_count = options.rings;
  header.ring_bytes = bytes_of_ring(pool, options.ring_bytes);
  header.log_bytes = shard_log_bytes(pool, options.shard_log_bytes);
  header.clean = 1;
  PMSTORE_TRY(const auto ring_room, catalog.make_redo_room());
  const uint64_t log_bytes = log_area_bytes(pool, options.log_bytes);
  if (log_bytes > pool.largest_free_extent()) {
    return make_error(ErrorCode::kFull, "the pool has no room for a log area of " +
                                            base::size_text(log_bytes) + ": at most " +
                                            base::size_text(pool.largest_free_extent()) +
                                            " are left beside the client rings");
  }
  if (log_bytes > 0) {
    PMSTORE_TRY_STATUS(log::LogStore::format(pool, log_bytes, options.identity));
  }
  PMSTORE_TRY_STATUS(make_file_room(pool, options.file_bytes));
  const uint64_t room = persist::round_down(pool.largest_free_extent(), kChunkBytes);
  const uint64_t log_room = catalog.has_log_extent() ? 0 : header.log_bytes;
  if (room < log_room + 4 * kChunkBytes) {
    return make_error(ErrorCode::kFull,
                      "the pool has no room for records beside " + std::to_string(options.rings) +
                          " client rings of " + base::size_text(header.ring_bytes) +
                          ", a shard log of " + base::size_text(header.log_bytes) + ", " +
                          base::size_text(log_bytes) + " for logs and " +
                          base::size_text(options.file_bytes) +
                          " for file data: use fewer or smaller rings, or a larger pool");
  }
  PMSTORE_TRY(const auto records, pool.allocate_extent(persist::ExtentKind::kRecords, room));
  // An extent of their own would take 2.5 MiB of a pool file. So lies a small shard log there.
  if (pool.info().bytes >= persist::kMinPoolBytes && room >= log_room + 8 * kChunkBytes) {
    header.tables_offset = records.offset + records.bytes - kMoreTablesBytes;
    header.tables_bytes = kMoreTablesBytes;
  }
  header.records_offset = records.offset;
  header.records_bytes =
      persist::round_down(records.bytes - header.tables_bytes - log_room, kChunkBytes);
  if (log_room > 0) header.log_offset = records.offset + header.records_bytes;
  // Rings can get this room, as long as the pool has nothing else that needs it.
  for (const persist::Extent& extent : ring_room) {
    PMSTORE_TRY_STATUS(pool.free_extent(extent));
  }
  PMSTORE_TRY_STATUS(catalog.format_log(0));
  // The header comes last: a pool whose formatting was interrupted has no catalog.
  PMSTORE_TRY(catalog.header_durable_, catalog.header_copies().write_first(header, header_crc));
  for (const std::string& name : options.tables) {
    if (catalog.find(name)) continue;
    if (auto made = catalog.create_table(name); !made) return made.error();
  }
  return {};
}

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

Status TableCatalog::begin_epoch() {
  PMSTORE_CHECK(!is_earlier(), "a server opens no pool that must be converted");
  PMSTORE_TRY_STATUS(make_found_durable());
  CatalogHeader next = header_;
  ++next.epoch;
  next.clean = 0;
  next.table_count = static_cast<uint32_t>(entries_.size());
  return write_header(next);
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

Status TableCatalog::write_header(CatalogHeader next) {
  PMSTORE_CHECK(header_durable_, "what load() has found is durable");
  PMSTORE_TRY(header_durable_, header_copies().write(*header_durable_, next, header_crc));
  header_ = next;
  return {};
}

}  // namespace internal

Status check_format(const FormatOptions& options) {
  if (options.rings > internal::kMostRings) {
    return make_error(ErrorCode::kInvalidArgument, "a pool has at most 4096 client rings");
  }
  if (options.shard_log_bytes != 0 && options.shard_log_bytes < log::kMinRingBytes) {
    return make_error(ErrorCode::kInvalidArgument,
                      "a shard log of " + base::size_text(options.shard_log_bytes) +
                          " is too small: use at least " + base::size_text(log::kMinRingBytes));
  }
  if (options.ring_bytes != 0 && options.ring_bytes < log::kMinRingBytes) {
    return make_error(ErrorCode::kInvalidArgument,
                      "a client ring of " + base::size_text(options.ring_bytes) +
                          " is too small: use at least " + base::size_text(log::kMinRingBytes));
  }
  if (options.file_bytes != 0 && options.file_bytes < FormatOptions::kLeastFileBytes) {
    return make_error(ErrorCode::kInvalidArgument,
                      base::size_text(options.file_bytes) +
                          " is too little for file data: use at least " +
                          base::size_text(FormatOptions::kLeastFileBytes));
  }
  for (const std::string& name : options.tables) {
    PMSTORE_TRY_STATUS(check_table_name(name));
  }
  return {};
}

Status format_store(persist::Pool& pool, const FormatOptions& options) {
  return internal::TableCatalog::format(pool, options);
}

}  // namespace pmstore
