#include "persist/internal/catalog.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/checksum.h"
#include "base/size_text.h"
#include "persist/internal/pool_bytes.h"
#include "persist/padding.h"

namespace pmstore::persist::internal {
namespace {

uint32_t header_crc(PoolHeader header) {
  header.crc = 0;
  return base::crc32c(std::as_bytes(std::span(&header, 1)));
}

constexpr uint32_t kGenerationShift = 8;
static_assert(uint64_t{kLastGeneration} << kGenerationShift <= UINT32_MAX);

// The low half of a tag.
uint32_t kind_and_generation(ExtentKind kind, uint32_t generation) {
  return static_cast<uint32_t>(kind) | generation << kGenerationShift;
}
ExtentKind kind_in(uint32_t low) { return static_cast<ExtentKind>(low & 0xff); }
uint32_t generation_in(uint32_t low) { return low >> kGenerationShift; }

uint32_t entry_crc(size_t index, uint32_t low, const ExtentEntry& entry) {
  const uint64_t covered[] = {index, low, entry.offset, entry.bytes, entry.allocation};
  return base::crc32c(std::as_bytes(std::span(covered)));
}

uint32_t freed_crc(size_t index, uint32_t low) {
  const uint64_t covered[] = {index, low};
  return base::crc32c(std::as_bytes(std::span(covered)));
}

bool is_freed(size_t index, uint64_t tag) {
  const auto low = static_cast<uint32_t>(tag);
  return kind_in(low) == ExtentKind::kUnused && generation_in(low) > 0 &&
         tag >> 32 == freed_crc(index, low);
}

bool known_kind(uint32_t kind) {
  return kind >= static_cast<uint32_t>(ExtentKind::kRecords) &&
         kind <= static_cast<uint32_t>(ExtentKind::kCheckpoint);
}

bool overlap(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

Status check_header(std::span<const std::byte> pool, uint64_t layout_offset,
                    std::string_view name) {
  const auto header = read_as<PoolHeader>(pool, layout_offset);
  if (header.magic != kPoolMagic)
    return bad_pool(name, "damaged catalog header (no pmstore magic)");
  if (header.crc != header_crc(header)) return bad_pool(name, "damaged catalog header (checksum)");
  if (header.format_version != kPoolFormatVersion) {
    return make_error(
        ErrorCode::kVersionMismatch,
        fmt::format("{}: pool format {}, this program reads {}: use the pmstore that made it", name,
                    header.format_version, kPoolFormatVersion));
  }
  if (header.pool_bytes > pool.size()) {
    return bad_pool(name, fmt::format("truncated: {} of {} are left", base::size_text(pool.size()),
                                      base::size_text(header.pool_bytes)));
  }
  if (header.table_offset != layout_offset + sizeof(PoolHeader) ||
      header.root_offset != header.table_offset + kPoolTableBytes ||
      header.root_bytes != kRootBytes || header.max_extents != kMaxExtents) {
    return bad_pool(name, "damaged catalog header (offsets)");
  }
  if ((header.padding_off & ~(PaddingRules::kOffBits | kExtentsComeBack)) != 0) {
    return make_error(ErrorCode::kVersionMismatch,
                      fmt::format("{}: the pool is written under rules that this program does not "
                                  "know: use the pmstore that made it",
                                  name));
  }
  return {};
}

}  // namespace

Status Catalog::format(Memory& memory, uint64_t layout_offset, const PaddingRules& padding) {
  PMSTORE_CHECK(
      layout_offset % kXpLineBytes == 0 && memory.contains(layout_offset, kPoolLayoutBytes),
      "the layout must lie aligned inside the pool");
  PoolHeader header{};
  header.magic = kPoolMagic;
  header.format_version = kPoolFormatVersion;
  header.pool_bytes = memory.bytes();
  header.table_offset = layout_offset + sizeof(PoolHeader);
  header.root_offset = header.table_offset + kPoolTableBytes;
  header.root_bytes = kRootBytes;
  header.max_extents = kMaxExtents;
  header.padding_off = padding.off_bits() | kExtentsComeBack;
  header.crc = header_crc(header);
  memory.write(memory.at(layout_offset), &header, sizeof header);
  if (auto durable = memory.drain(); !durable) return durable.error();
  return {};
}

Status Catalog::make_durable(Memory& memory, uint64_t layout_offset) {
  memory.flush(memory.at(layout_offset), sizeof(PoolHeader) + kPoolTableBytes);
  if (auto durable = memory.drain(); !durable) return durable.error();
  return {};
}

Result<Catalog> Catalog::read(std::span<const std::byte> pool, uint64_t layout_offset,
                              std::string_view name) {
  if (layout_offset % kXpLineBytes != 0 || pool.size() < kPoolLayoutBytes ||
      layout_offset > pool.size() - kPoolLayoutBytes) {
    return bad_pool(name, "damaged catalog header (outside the pool)");
  }
  PMSTORE_TRY_STATUS(check_header(pool, layout_offset, name));
  const auto header = read_as<PoolHeader>(pool, layout_offset);
  const uint64_t pool_bytes = header.pool_bytes;
  Catalog catalog;
  catalog.layout_offset = layout_offset;
  catalog.root_offset = layout_offset + sizeof(PoolHeader) + kPoolTableBytes;
  catalog.padding = PaddingRules::from_off_bits(header.padding_off & ~kExtentsComeBack);
  catalog.extents_come_back = (header.padding_off & kExtentsComeBack) != 0;
  for (size_t i = 0; i < kMaxExtents; ++i) {
    const auto entry = read_as<ExtentEntry>(pool, entry_offset(layout_offset, i));
    if (entry.tag == 0) continue;
    if (catalog.generations.size() != i) {
      return bad_pool(name,
                      fmt::format("damaged extent table (entry {} without the one before)", i));
    }
    const auto low = static_cast<uint32_t>(entry.tag);
    catalog.generations.push_back(generation_in(low));
    if (is_freed(i, entry.tag)) continue;
    const ExtentKind kind = kind_in(low);
    if (entry.tag >> 32 != entry_crc(i, low, entry) || !known_kind(static_cast<uint32_t>(kind)) ||
        entry.offset % kXpLineBytes != 0 || entry.bytes % kXpLineBytes != 0 || entry.bytes == 0 ||
        entry.offset > pool_bytes || entry.bytes > pool_bytes - entry.offset) {
      return bad_pool(name, fmt::format("damaged extent table (entry {})", i));
    }
    if (overlap(entry.offset, entry.bytes, layout_offset, kPoolLayoutBytes)) {
      return bad_pool(name, fmt::format("damaged extent table (entry {} covers the catalog)", i));
    }
    for (const Extent& other : catalog.extents) {
      if (!overlap(entry.offset, entry.bytes, other.offset, other.bytes)) continue;
      return bad_pool(name, fmt::format("damaged extent table (entry {} covers another)", i));
    }
    catalog.extents.push_back(
        {kind, entry.offset, entry.bytes, static_cast<uint32_t>(i), generation_in(low)});
  }
  return catalog;
}

bool Catalog::covers(uint64_t offset, uint64_t bytes) const {
  if (overlap(offset, bytes, layout_offset, kPoolLayoutBytes)) return true;
  return std::any_of(extents.begin(), extents.end(), [&](const Extent& extent) {
    return overlap(offset, bytes, extent.offset, extent.bytes);
  });
}

std::optional<Catalog::FreeEntry> Catalog::free_entry() const {
  std::vector<bool> used(generations.size());
  for (const Extent& extent : extents) used[extent.entry] = true;
  // Of those that were freed, the one that was used least often.
  std::optional<FreeEntry> least;
  for (uint32_t i = 0; i < generations.size(); ++i) {
    if (used[i] || generations[i] == kLastGeneration) continue;
    if (!least || generations[i] < least->generation) least = FreeEntry{i, generations[i]};
  }
  if (least || generations.size() == kMaxExtents) return least;
  return FreeEntry{static_cast<uint32_t>(generations.size()), 0};
}

ExtentEntry Catalog::make_entry(const Extent& extent, uint64_t allocation) {
  PMSTORE_CHECK(extent.entry < kMaxExtents && extent.bytes > 0 &&
                    extent.offset % kXpLineBytes == 0 && extent.bytes % kXpLineBytes == 0 &&
                    extent.generation < kLastGeneration,
                "read() would call this entry damaged");
  ExtentEntry entry{0, extent.offset, extent.bytes, allocation};
  const uint32_t low = kind_and_generation(extent.kind, extent.generation);
  entry.tag = uint64_t{entry_crc(extent.entry, low, entry)} << 32 | low;
  return entry;
}

uint64_t Catalog::freed_tag(const Extent& extent) {
  PMSTORE_CHECK(extent.entry < kMaxExtents && extent.generation < kLastGeneration,
                "only what is an extent is freed");
  const uint32_t low = kind_and_generation(ExtentKind::kUnused, extent.generation + 1);
  return uint64_t{freed_crc(extent.entry, low)} << 32 | low;
}

void Catalog::add(const Extent& extent) {
  PMSTORE_CHECK(!covers(extent.offset, extent.bytes), "two owners would write to the same extent");
  if (extent.entry == generations.size()) generations.push_back(0);
  PMSTORE_CHECK(extent.entry < generations.size() && generations[extent.entry] == extent.generation,
                "no earlier extent of this entry had its generation");
  const auto behind = std::find_if(extents.begin(), extents.end(), [&](const Extent& other) {
    return other.entry >= extent.entry;
  });
  PMSTORE_CHECK(behind == extents.end() || behind->entry != extent.entry,
                "an extent that is in use would be lost");
  extents.insert(behind, extent);
}

void Catalog::remove(const Extent& extent) {
  PMSTORE_CHECK(has(extent), "an extent is freed once");
  generations[extent.entry] = extent.generation + 1;
  std::erase_if(extents, [&](const Extent& other) { return other.entry == extent.entry; });
}

bool Catalog::has(const Extent& extent) const {
  return std::any_of(extents.begin(), extents.end(), [&](const Extent& other) {
    return other.entry == extent.entry && other.generation == extent.generation &&
           other.offset == extent.offset;
  });
}

Result<uint64_t> check_extent_request(const Catalog& catalog, ExtentKind kind, uint64_t bytes,
                                      std::string_view name) {
  if (!known_kind(static_cast<uint32_t>(kind)) || bytes == 0 || bytes > UINT64_MAX / 2) {
    return make_error(
        ErrorCode::kInvalidArgument,
        fmt::format("{}: no extent of kind {} and {} bytes: give a known kind and a size", name,
                    static_cast<uint32_t>(kind), bytes));
  }
  if (!catalog.free_entry()) {
    return make_error(
        ErrorCode::kFull,
        fmt::format("{}: all {} extents of this pool are used: make a pool with larger ones", name,
                    kMaxExtents));
  }
  return round_up(bytes, kXpLineBytes);
}

Error nothing_is_freed(std::string_view name) {
  return make_error(ErrorCode::kUnsupported,
                    fmt::format("{}: an extent of a pool of an earlier release is not freed, "
                                "because programs of that release would find the pool damaged; "
                                "copy the records into a new pool",
                                name));
}

Status check_reserves(Pool& pool, ExtentKind kind, uint64_t bytes) {
  const SpaceRules& rules = pool.space_rules();
  if (!rules.has_reserves() || bytes > pool.largest_free_extent()) return {};
  if (std::max(bytes, pool.least_extent()) <= pool.room_for(kind)) return {};
  return make_error(
      ErrorCode::kFull,
      fmt::format("{}: no room for an extent of {} for {}: of the free space is reserved {}: free "
                  "other space, or lower a reserve (pmstore pool limit)",
                  pool.info().path, base::size_text(bytes), extent_name(kind),
                  pool.reserved_for_others(kind)));
}

Error no_room(std::string_view name, uint64_t wanted_bytes, uint64_t largest_bytes) {
  return make_error(
      ErrorCode::kFull,
      fmt::format("{}: no room for an extent of {}, the largest possible is {}: "
                  "make a larger pool",
                  name, base::size_text(wanted_bytes), base::size_text(largest_bytes)));
}

}  // namespace pmstore::persist::internal
