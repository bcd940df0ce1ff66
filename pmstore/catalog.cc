#include "pmstore/internal/catalog.h"

#include <algorithm>
#include <cstring>

#include "base/checksum.h"
#include "base/random.h"
#include "base/size_text.h"
#include "log/log_store.h"
#include "log/ring.h"
#include "persist/padding.h"
#include "pmstore/internal/slab_layout.h"

namespace pmstore {

namespace internal {

namespace {

template <typename T>
uint32_t crc_after_first_fields(const T& value, size_t from, uint32_t seed) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  return base::crc32c(bytes.subspan(from), seed);
}

uint32_t header_crc(const CatalogHeader& header) {
  return crc_after_first_fields(header, offsetof(CatalogHeader, version), 0);
}

uint32_t entry_crc(const TableEntry& entry, uint64_t pool) {
  return crc_after_first_fields(entry, offsetof(TableEntry, id), static_cast<uint32_t>(pool | 1));
}

bool entry_valid(const TableEntry& entry, size_t index, uint64_t pool) {
  return entry.id == index + 1 && entry.name_bytes > 0 && entry.name_bytes <= kMaxTableNameBytes &&
         entry.crc == entry_crc(entry, pool);
}

bool entry_unused(const TableEntry& entry) {
  const auto bytes = std::as_bytes(std::span(&entry, 1));
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

bool header_valid(const CatalogHeader& header, const persist::Memory& memory) {
  return header.magic == kCatalogMagic && header.crc == header_crc(header) &&
         header.version == kCatalogVersion && header.ring_count > 0 &&
         memory.contains(header.rings_offset, header.ring_count * header.ring_bytes) &&
         memory.contains(header.records_offset, header.records_bytes);
}

}  // namespace

namespace {

Status check_table_name(std::string_view name) {
  if (!name.empty() && name.size() <= kMaxTableNameBytes) return {};
  return make_error(ErrorCode::kInvalidArgument,
                    "a table's name has 1 to " + std::to_string(kMaxTableNameBytes) + " bytes");
}

// What a new pool gives to logs.
uint64_t log_area_bytes(const persist::Pool& pool, uint64_t wanted) {
  if (wanted != FormatOptions::kDefaultLogBytes) return wanted;
  constexpr uint64_t kLeastPool = 64u << 20;
  constexpr uint64_t kShare = 8;
  if (pool.info().bytes < kLeastPool) return 0;
  return persist::round_down(pool.info().bytes / kShare, persist::kXpLineBytes);
}

}  // namespace

Status Catalog::format(persist::Pool& pool, const FormatOptions& options) {
  PMSTORE_TRY_STATUS(check_format(options));
  uint64_t ring_bytes = options.ring_bytes;
  if (ring_bytes == 0) {
    // From 256 MiB on, a transaction may hold the largest value (it takes a little under half a
    // ring).
    constexpr uint64_t kHoldsLargestValue = 2304 << 10;
    const uint64_t pool_bytes = pool.info().bytes;
    const uint64_t least = pool_bytes >= (240u << 20) ? kHoldsLargestValue : 64 << 10;
    ring_bytes = std::clamp<uint64_t>(pool_bytes / 128, least, 4 << 20);
  }
  ring_bytes = persist::round_up(ring_bytes, persist::kXpLineBytes);
  Catalog catalog(pool);
  if (pool.largest_free_extent() / options.rings < ring_bytes) {
    return make_error(ErrorCode::kFull, "the pool has no room for " +
                                            std::to_string(options.rings) + " client rings of " +
                                            base::size_text(ring_bytes) +
                                            ": use fewer or smaller rings, or a larger pool");
  }
  PMSTORE_TRY(const auto rings,
              pool.allocate_extent(persist::ExtentKind::kRings, options.rings * ring_bytes));
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
  const uint64_t room = persist::round_down(pool.largest_free_extent(), kChunkBytes);
  if (room < 4 * kChunkBytes) {
    return make_error(ErrorCode::kFull,
                      "the pool has no room for records beside " + std::to_string(options.rings) +
                          " client rings of " + base::size_text(ring_bytes) + " and " +
                          base::size_text(log_bytes) +
                          " for logs: use fewer or smaller rings, or a larger pool");
  }
  PMSTORE_TRY(const auto records, pool.allocate_extent(persist::ExtentKind::kRecords, room));
  CatalogHeader& header = catalog.header_;
  header.magic = kCatalogMagic;
  header.version = kCatalogVersion;
  header.ring_count = options.rings;
  header.ring_bytes = ring_bytes;
  header.pool = options.identity != 0 ? options.identity : base::random_identity();
  header.rings_offset = rings.offset;
  header.records_offset = records.offset;
  header.records_bytes = records.bytes;
  header.clean = 1;
  for (uint32_t i = 0; i < header.ring_count; ++i) {
    auto ring =
        log::Ring::format(pool.memory(), catalog.ring_offset(i), ring_bytes, catalog.ring_salt(i));
    if (!ring) return ring.error();
  }
  // The header comes last: a pool whose formatting was interrupted has no catalog.
  PMSTORE_TRY_STATUS(catalog.write_header());
  for (const std::string& name : options.tables) {
    if (catalog.find(name)) continue;
    if (auto made = catalog.create_table(name); !made) return made.error();
  }
  return {};
}

Result<Catalog> Catalog::load(persist::Pool& pool) {
  Catalog catalog(pool);
  const std::byte* root = pool.root().data();
  bool found = false;
  for (uint64_t copy = 0; copy < 2; ++copy) {
    CatalogHeader header;
    std::memcpy(&header, root + copy * kCatalogCopyBytes, sizeof(header));
    if (!header_valid(header, pool.memory())) continue;
    if (!found || header.generation > catalog.header_.generation) catalog.header_ = header;
    catalog.both_copies_ = found;
    found = true;
  }
  if (!found) {
    return make_error(ErrorCode::kBadPool,
                      pool.info().path +
                          ": the store's catalog is damaged or was never written; "
                          "restore the pool from a backup, or create a new one");
  }
  PMSTORE_TRY_STATUS(catalog.load_tables());
  return catalog;
}

// A table is its id in the records: an id that was forgotten would give its records to the next
// table.
Status Catalog::load_tables() {
  const std::byte* entries = pool_->root().data() + kTableEntriesOffset;
  bool ended = false;
  for (size_t i = 0; i < kMaxTables; ++i) {
    TableEntry entry;
    std::memcpy(&entry, entries + i * sizeof(entry), sizeof(entry));
    if (!ended && entry_valid(entry, i, header_.pool)) {
      tables_.push_back(
          {static_cast<TableId>(entry.id), std::string(entry.name, entry.name_bytes)});
      continue;
    }
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

Error table_is_lost(const std::string& path, uint16_t table) {
  return make_error(ErrorCode::kBadPool,
                    path + ": there are records of table " + std::to_string(table) +
                        ", which the store's table of tables does not have any more; restore the "
                        "pool from a backup, or create a new one");
}

uint32_t Catalog::ring_salt(uint32_t ring) const {
  return static_cast<uint32_t>(base::mix64(header_.pool + ring));
}

std::optional<TableId> Catalog::find(std::string_view name) const {
  for (const TableInfo& table : tables_) {
    if (table.name == name) return table.id;
  }
  return std::nullopt;
}

Result<TableId> Catalog::create_table(std::string_view name) {
  PMSTORE_TRY_STATUS(check_table_name(name));
  if (tables_.size() == kMaxTables) {
    return make_error(ErrorCode::kFull,
                      "a pool has at most " + std::to_string(kMaxTables) + " tables");
  }
  TableEntry entry{};
  entry.id = static_cast<uint16_t>(tables_.size() + 1);
  entry.kind = 1;
  entry.name_bytes = static_cast<uint8_t>(name.size());
  std::memcpy(entry.name, name.data(), name.size());
  entry.crc = entry_crc(entry, header_.pool);
  persist::Memory& memory = pool_->memory();
  memory.write(pool_->root().data() + kTableEntriesOffset + tables_.size() * sizeof(entry), &entry,
               sizeof(entry));
  auto durable = memory.drain();
  if (!durable) return durable.error();
  tables_.push_back({static_cast<TableId>(entry.id), std::string(name)});
  // Counted before anybody hears of it.
  PMSTORE_TRY_STATUS(write_header());
  return tables_.back().id;
}

Status Catalog::begin_epoch() {
  // What was found may be in the CPU's caches only; it must not go before its successor is there.
  persist::Memory& memory = pool_->memory();
  memory.flush(pool_->root().data(), kTableEntriesOffset + kMaxTables * sizeof(TableEntry));
  auto durable = memory.drain();
  if (!durable) return durable.error();
  ++header_.epoch;
  header_.clean = 0;
  return write_header();
}

Status Catalog::mark_clean() {
  header_.clean = 1;
  return write_header();
}

Status Catalog::write_header() {
  ++header_.generation;
  header_.table_count = static_cast<uint32_t>(tables_.size());
  header_.crc = header_crc(header_);
  persist::Memory& memory = pool_->memory();
  memory.write(pool_->root().data() + header_.generation % 2 * kCatalogCopyBytes, &header_,
               sizeof(header_));
  auto durable = memory.drain();
  if (!durable) return durable.error();
  return {};
}

}  // namespace internal

Status check_format(const FormatOptions& options) {
  if (options.rings == 0 || options.rings > 4096) {
    return make_error(ErrorCode::kInvalidArgument, "a pool has 1 to 4096 client rings");
  }
  if (options.ring_bytes != 0 && options.ring_bytes < log::kMinRingBytes) {
    return make_error(ErrorCode::kInvalidArgument,
                      "a client ring of " + base::size_text(options.ring_bytes) +
                          " is too small: use at least " + base::size_text(log::kMinRingBytes));
  }
  for (const std::string& name : options.tables) {
    PMSTORE_TRY_STATUS(internal::check_table_name(name));
  }
  return {};
}

Status format_store(persist::Pool& pool, const FormatOptions& options) {
  return internal::Catalog::format(pool, options);
}

}  // namespace pmstore
