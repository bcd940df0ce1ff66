#include "fs/file_area.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "base/checksum.h"
#include "base/random.h"
#include "persist/padding.h"

namespace pmstore::fs {
namespace {

uint32_t area_crc(const FileAreaHeader& header) {
  constexpr size_t kFrom = offsetof(FileAreaHeader, version);
  size_t end = sizeof header;
  if (header.version == kFileAreaVersionWithoutKey) end = offsetof(FileAreaHeader, owner_key);
  if (header.version == kFileAreaVersionWithoutOwner) end = offsetof(FileAreaHeader, owner);
  return base::crc32c(std::as_bytes(std::span(&header, 1)).subspan(kFrom, end - kFrom));
}

// In the extent: the first multiple of kUnitBytes in the memory behind the header.
uint64_t units_offset(const persist::Extent& extent) {
  return persist::round_up(extent.offset + kFileAreaHeaderBytes, kUnitBytes) - extent.offset;
}

const persist::Extent* find_extent(const persist::Pool& pool) {
  const auto& extents = pool.info().extents;
  const auto found = std::find_if(extents.begin(), extents.end(), [](const persist::Extent& each) {
    return each.kind == persist::ExtentKind::kFileData;
  });
  return found == extents.end() ? nullptr : &*found;
}

}  // namespace

bool FileArea::is_in(const persist::Pool& pool) { return find_extent(pool) != nullptr; }

Result<FileArea> FileArea::in_extent_of(persist::Pool& pool) {
  const persist::Extent* const extent = find_extent(pool);
  if (extent == nullptr) {
    return make_error(ErrorCode::kNotFound,
                      "this pool has no area for files; create it with --file-bytes");
  }
  return FileArea(pool, *extent);
}

Status FileArea::format(persist::Pool& pool, uint64_t identity) {
  PMSTORE_TRY(FileArea area, in_extent_of(pool));
  const persist::TwoCopies<FileAreaHeader> copies = area.header_copies();
  if (!copies.is_blank(0) || !copies.is_blank(1)) {
    return make_error(ErrorCode::kAlreadyExists,
                      "the pool's area for files is formatted already; create a new pool");
  }
  FileAreaHeader& header = area.header_;
  header.magic = kFileAreaMagic;
  header.version = kFileAreaVersion;
  header.unit_bytes = kUnitBytes;
  header.identity = identity != 0 ? identity : base::random_identity();
  header.units_offset = units_offset(area.extent_);
  PMSTORE_CHECK(area.extent_.bytes >= header.units_offset + kUnitBytes,
                "check_format() asks for more than the header takes");
  header.units = (area.extent_.bytes - header.units_offset) / kUnitBytes;
  header.area_bytes = area.extent_.bytes;
  PMSTORE_CHECK(area.is_valid(header), "open() would call this header damaged");
  PMSTORE_TRY(const persist::Persisted first, copies.write_first(header, area_crc));
  PMSTORE_TRY_STATUS(copies.write(first, header, area_crc));
  return {};
}

// What follows must hold for whatever bytes have got a right checksum.
bool FileArea::is_valid(const FileAreaHeader& header) const {
  return header.unit_bytes == kUnitBytes && header.area_bytes == extent_.bytes &&
         header.units_offset == units_offset(extent_) && header.units > 0 &&
         header.units_offset < extent_.bytes &&
         header.units <= (extent_.bytes - header.units_offset) / kUnitBytes;
}

Result<FileArea> FileArea::look(persist::Pool& pool) {
  PMSTORE_TRY(FileArea area, in_extent_of(pool));
  const auto is_valid = [&](const FileAreaHeader& header) -> Result<bool> {
    if (header.magic != kFileAreaMagic || header.crc != area_crc(header)) return false;
    if (header.version > kFileAreaVersion || header.version < kFileAreaVersionWithoutOwner) {
      return make_error(ErrorCode::kVersionMismatch,
                        fmt::format("the pool's area for files has format version {}, this program "
                                    "reads {}: use the program that wrote it",
                                    header.version, kFileAreaVersion));
    }
    return area.is_valid(header);
  };
  std::optional<persist::TwoCopies<FileAreaHeader>::Found> found;
  if (area.extent_.bytes > kFileAreaHeaderBytes) {
    PMSTORE_TRY(found, area.header_copies().read(is_valid));
  }
  if (!found) {
    return make_error(ErrorCode::kBadPool,
                      "the header of the pool's area for files is damaged, both copies; restore "
                      "the pool from a backup, or create a new one");
  }
  area.header_ = found->header;
  if (area.header_.version == kFileAreaVersionWithoutOwner) {
    area.header_.owner = area.header_.owner_epoch = area.header_.owner_start = 0;
    area.header_.owner_index = 0;
  }
  if (area.header_.version != kFileAreaVersion) {
    area.header_.owner_key[0] = area.header_.owner_key[1] = 0;
  }
  return area;
}

Status FileArea::set_owner(const AreaOwner& owner) {
  FileAreaHeader next = header_;
  next.version = kFileAreaVersion;
  next.owner = owner.file_system;
  next.owner_epoch = owner.epoch;
  next.owner_index = owner.server;
  next.owner_start = owner.start;
  next.owner_key[0] = owner.key.low;
  next.owner_key[1] = owner.key.high;
  // open() has made both copies durable.
  PMSTORE_TRY(const persist::Persisted durable, memory_->drain());
  PMSTORE_TRY_STATUS(header_copies().write_both(durable, next, area_crc));
  header_ = next;
  return {};
}

Result<FileArea> FileArea::open(persist::Pool& pool) {
  PMSTORE_TRY(FileArea area, look(pool));
  persist::Memory& memory = pool.memory();
  // A msync for what is outside does not go through the units, nor the other way round.
  memory.begin_area(area.extent_.offset);
  const uint64_t end = area.extent_.offset + area.extent_.bytes;
  if (end < memory.bytes()) memory.begin_area(end);
  // What was found may be in the CPU's caches only.
  memory.flush(memory.at(area.extent_.offset), kFileAreaHeaderBytes);
  PMSTORE_TRY(const persist::Persisted durable, memory.drain());
  ++area.header_.starts;
  PMSTORE_TRY_STATUS(area.header_copies().write_both(durable, area.header_, area_crc));
  return area;
}

Status format_pool(persist::Pool& pool, const FormatOptions& options) {
  PMSTORE_TRY_STATUS(format_store(pool, options));
  if (options.file_bytes == 0) return {};
  return FileArea::format(pool, options.identity);
}

}  // namespace pmstore::fs
