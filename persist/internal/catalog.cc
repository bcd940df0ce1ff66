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

uint32_t entry_crc(size_t index, uint32_t kind, const ExtentEntry& entry) {
  const uint64_t covered[] = {index, kind, entry.offset, entry.bytes, entry.allocation};
  return base::crc32c(std::as_bytes(std::span(covered)));
}

bool known_kind(uint32_t kind) {
  return kind >= static_cast<uint32_t>(ExtentKind::kRecords) &&
         kind <= static_cast<uint32_t>(ExtentKind::kFileData);
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
  if ((header.padding_off & ~PaddingRules::kOffBits) != 0) {
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
  header.padding_off = padding.off_bits();
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
  catalog.padding = PaddingRules::from_off_bits(header.padding_off);
  for (size_t i = 0; i < kMaxExtents; ++i) {
    const auto entry = read_as<ExtentEntry>(pool, entry_offset(layout_offset, i));
    if (entry.tag == 0) continue;
    if (catalog.extents.size() != i) {
      return bad_pool(name,
                      fmt::format("damaged extent table (entry {} without the one before)", i));
    }
    const auto kind = static_cast<uint32_t>(entry.tag);
    if (entry.tag >> 32 != entry_crc(i, kind, entry) || !known_kind(kind) ||
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
    catalog.extents.push_back({static_cast<ExtentKind>(kind), entry.offset, entry.bytes});
  }
  return catalog;
}

bool Catalog::covers(uint64_t offset, uint64_t bytes) const {
  if (overlap(offset, bytes, layout_offset, kPoolLayoutBytes)) return true;
  return std::any_of(extents.begin(), extents.end(), [&](const Extent& extent) {
    return overlap(offset, bytes, extent.offset, extent.bytes);
  });
}

ExtentEntry Catalog::make_entry(size_t index, const Extent& extent, uint64_t allocation) {
  PMSTORE_CHECK(index < kMaxExtents && extent.bytes > 0 && extent.offset % kXpLineBytes == 0 &&
                    extent.bytes % kXpLineBytes == 0,
                "read() would call this entry damaged");
  ExtentEntry entry{0, extent.offset, extent.bytes, allocation};
  const auto kind = static_cast<uint32_t>(extent.kind);
  entry.tag = uint64_t{entry_crc(index, kind, entry)} << 32 | kind;
  return entry;
}

Result<uint64_t> check_extent_request(const Catalog& catalog, ExtentKind kind, uint64_t bytes,
                                      std::string_view name) {
  if (!known_kind(static_cast<uint32_t>(kind)) || bytes == 0 || bytes > UINT64_MAX / 2) {
    return make_error(
        ErrorCode::kInvalidArgument,
        fmt::format("{}: no extent of kind {} and {} bytes: give a known kind and a size", name,
                    static_cast<uint32_t>(kind), bytes));
  }
  if (catalog.extents.size() == kMaxExtents) {
    return make_error(
        ErrorCode::kFull,
        fmt::format("{}: all {} extents of this pool are used: make a pool with larger ones", name,
                    kMaxExtents));
  }
  return round_up(bytes, kXpLineBytes);
}

Error no_room(std::string_view name, uint64_t wanted_bytes, uint64_t largest_bytes) {
  return make_error(
      ErrorCode::kFull,
      fmt::format("{}: no room for an extent of {}, the largest possible is {}: "
                  "make a larger pool",
                  name, base::size_text(wanted_bytes), base::size_text(largest_bytes)));
}

}  // namespace pmstore::persist::internal
