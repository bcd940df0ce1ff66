#include "fs/file_area.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

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

uint32_t section_crc(const AreaSectionHeader& header) {
  constexpr size_t kFrom = offsetof(AreaSectionHeader, version);
  return base::crc32c(std::as_bytes(std::span(&header, 1)).subspan(kFrom));
}

// In the extent: the first multiple of kUnitBytes in the memory behind the header.
uint64_t units_offset(const persist::Extent& extent) {
  return persist::round_up(extent.offset + kFileAreaHeaderBytes, kUnitBytes) - extent.offset;
}

// Of a section of about so many bytes.
uint64_t extent_bytes(uint64_t bytes) { return persist::round_up(bytes, persist::kXpLineBytes); }

// Of either copy, if it is whole and of this extent; whatever bytes have got a right checksum.
std::optional<AreaSectionHeader> section_header(persist::Memory& memory,
                                                const persist::Extent& extent) {
  if (extent.bytes <= kFileAreaHeaderBytes) return std::nullopt;
  for (uint64_t copy = 0; copy < 2; ++copy) {
    AreaSectionHeader found;
    std::memcpy(&found, memory.at(extent.offset + copy * kFileAreaCopyStride), sizeof found);
    const uint64_t offset = units_offset(extent);
    const bool is_whole = found.magic == kAreaSectionMagic && found.crc == section_crc(found) &&
                          found.version == kAreaSectionVersion;
    const bool fits = found.unit_bytes == kUnitBytes && found.section_bytes == extent.bytes &&
                      found.units_offset == offset && offset < extent.bytes && found.units > 0 &&
                      found.units <= (extent.bytes - offset) / kUnitBytes && found.first_unit > 0 &&
                      found.first_unit % kSectionNumbers == 0 &&
                      found.first_unit < UINT64_MAX / kUnitBytes - found.units;
    if (is_whole && fits) return found;
  }
  return std::nullopt;
}

// Extents of file data that are no later section: one, if nothing is damaged.
std::vector<persist::Extent> first_extents(persist::Pool& pool) {
  std::vector<persist::Extent> found;
  for (const persist::Extent& extent : pool.info().extents) {
    if (extent.kind != persist::ExtentKind::kFileData) continue;
    if (!section_header(pool.memory(), extent)) found.push_back(extent);
  }
  return found;
}

Error damaged_section(const persist::Extent& extent) {
  return make_error(
      ErrorCode::kBadPool,
      fmt::format("the extent at offset {} holds file data of no known place; restore the pool "
                  "from a backup",
                  extent.offset));
}

}  // namespace

bool FileArea::is_in(const persist::Pool& pool) {
  const auto& extents = pool.info().extents;
  return std::any_of(extents.begin(), extents.end(), [](const persist::Extent& each) {
    return each.kind == persist::ExtentKind::kFileData;
  });
}

FileArea::FileArea(persist::Pool& pool, const persist::Extent& first)
    : pool_(&pool), memory_(&pool.memory()) {
  sections_.push_back({.extent = first});
}

Result<FileArea> FileArea::in_extent_of(persist::Pool& pool) {
  if (!is_in(pool)) {
    return make_error(ErrorCode::kNotFound,
                      "this pool has no area for files; create it with --file-bytes, or serve it "
                      "with pmstored --files");
  }
  const std::vector<persist::Extent> found = first_extents(pool);
  if (found.empty()) {
    return make_error(ErrorCode::kBadPool,
                      "the first section of the pool's area for files is missing; restore the pool "
                      "from a backup");
  }
  if (found.size() > 1) return damaged_section(found.back());
  return FileArea(pool, found.front());
}

uint64_t FileArea::units() const {
  uint64_t all = 0;
  for (const AreaSection& section : sections_) all += section.units;
  return all;
}

Status FileArea::format(persist::Pool& pool, uint64_t identity) {
  PMSTORE_TRY(FileArea area, in_extent_of(pool));
  const persist::TwoCopies<FileAreaHeader> copies = area.header_copies();
  if (!copies.is_blank(0) || !copies.is_blank(1)) {
    return make_error(ErrorCode::kAlreadyExists,
                      "the pool's area for files is formatted already; create a new pool");
  }
  return area.write_first_header(identity);
}

Status FileArea::create(persist::Pool& pool, uint64_t bytes, uint64_t identity) {
  PMSTORE_CHECK(bytes >= least_section(), "an area has a unit");
  if (is_in(pool)) {
    return make_error(ErrorCode::kAlreadyExists, "the pool has an area for files already");
  }
  const auto fill = [&](const persist::Extent& extent) {
    return FileArea(pool, extent).write_first_header(identity);
  };
  const uint64_t whole = persist::round_up(bytes, persist::kXpLineBytes);
  PMSTORE_TRY_STATUS(pool.allocate_filled(persist::ExtentKind::kFileData, whole, fill));
  return {};
}

Status FileArea::write_first_header(uint64_t identity) {
  FileAreaHeader& header = header_;
  header.magic = kFileAreaMagic;
  header.version = kFileAreaVersionOfOneSection;
  header.unit_bytes = kUnitBytes;
  header.identity = identity != 0 ? identity : base::random_identity();
  const persist::Extent& extent = first_extent();
  header.units_offset = units_offset(extent);
  PMSTORE_CHECK(extent.bytes >= header.units_offset + kUnitBytes,
                "check_format() asks for more than the header takes");
  header.units = (extent.bytes - header.units_offset) / kUnitBytes;
  header.area_bytes = extent.bytes;
  PMSTORE_CHECK(is_valid(header), "open() would call this header damaged");
  const persist::TwoCopies<FileAreaHeader> copies = header_copies();
  PMSTORE_TRY(const persist::Persisted first, copies.write_first(header, area_crc));
  PMSTORE_TRY_STATUS(copies.write(first, header, area_crc));
  return {};
}

// What follows must hold for whatever bytes have got a right checksum.
bool FileArea::is_valid(const FileAreaHeader& header) const {
  const persist::Extent& extent = first_extent();
  return header.unit_bytes == kUnitBytes && header.area_bytes == extent.bytes &&
         header.units_offset == units_offset(extent) && header.units > 0 &&
         header.units_offset < extent.bytes &&
         header.units <= (extent.bytes - header.units_offset) / kUnitBytes;
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
  if (area.first_extent().bytes > kFileAreaHeaderBytes) {
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
  if (area.header_.version < kFileAreaVersionOfOneSection) {
    area.header_.owner_key[0] = area.header_.owner_key[1] = 0;
  }
  PMSTORE_TRY_STATUS(area.find_sections(pool));
  return area;
}

Status FileArea::set_owner(const AreaOwner& owner) {
  FileAreaHeader next = header_;
  next.version = std::max(next.version, kFileAreaVersionOfOneSection);
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
  for (const AreaSection& section : area.sections_) area.separate(section.extent);
  // What was found may be in the CPU's caches only.
  memory.flush(memory.at(area.first_extent().offset), kFileAreaHeaderBytes);
  PMSTORE_TRY(const persist::Persisted durable, memory.drain());
  ++area.header_.starts;
  PMSTORE_TRY_STATUS(area.header_copies().write_both(durable, area.header_, area_crc));
  return area;
}

// ---- sections ----

Status FileArea::find_sections(persist::Pool& pool) {
  sections_.front().units = header_.units;
  sections_.front().units_offset = header_.units_offset;
  for (const persist::Extent& extent : pool.info().extents) {
    if (extent.kind != persist::ExtentKind::kFileData) continue;
    const auto found = section_header(*memory_, extent);
    if (!found) continue;
    const bool is_mine =
        found->area == header_.identity && header_.version > kFileAreaVersionOfOneSection;
    if (!is_mine) return damaged_section(extent);
    sections_.push_back({extent, found->first_unit, found->units, found->units_offset});
  }
  std::sort(sections_.begin(), sections_.end(),
            [](const AreaSection& a, const AreaSection& b) { return a.first_unit < b.first_unit; });
  for (size_t i = 1; i < sections_.size(); ++i) {
    // A run of free units would go from one into the other.
    if (sections_[i].begin() <= sections_[i - 1].end()) return damaged_section(sections_[i].extent);
  }
  next_unit_ = sections_.back().first_unit + sections_.back().units;
  return {};
}

void FileArea::separate(const persist::Extent& extent) const {
  memory_->begin_area(extent.offset);
  const uint64_t end = extent.offset + extent.bytes;
  if (end < memory_->bytes()) memory_->begin_area(end);
}

// A release that knows one section only refuses the area from here on.
Status FileArea::announce_sections() {
  if (header_.version == kFileAreaVersion) return {};
  FileAreaHeader next = header_;
  next.version = kFileAreaVersion;
  // open() has made both copies durable.
  PMSTORE_TRY(const persist::Persisted durable, memory_->drain());
  PMSTORE_TRY_STATUS(header_copies().write_both(durable, next, area_crc));
  header_ = next;
  return {};
}

Result<bool> FileArea::zero_ahead(persist::Pool& pool, uint64_t bytes, uint64_t most_bytes) const {
  return pool.zero_ahead(persist::ExtentKind::kFileData, extent_bytes(bytes), most_bytes);
}

Result<AreaSection> FileArea::add_section(persist::Pool& pool, uint64_t bytes) {
  PMSTORE_CHECK(bytes >= least_section(), "a section has a unit");
  PMSTORE_TRY_STATUS(announce_sections());
  AreaSection made;
  made.first_unit = persist::round_up(next_unit_ + 1, kSectionNumbers);
  const auto fill = [&](const persist::Extent& extent) -> Status {
    made.units_offset = units_offset(extent);
    made.units = (extent.bytes - made.units_offset) / kUnitBytes;
    AreaSectionHeader header{};
    header.magic = kAreaSectionMagic;
    header.version = kAreaSectionVersion;
    header.unit_bytes = kUnitBytes;
    header.area = header_.identity;
    header.first_unit = made.first_unit;
    header.units_offset = made.units_offset;
    header.units = made.units;
    header.section_bytes = extent.bytes;
    header.crc = section_crc(header);
    for (uint64_t copy = 0; copy < 2; ++copy) {
      std::byte* const at = memory_->at(extent.offset + copy * kFileAreaCopyStride);
      memory_->write(at, &header, sizeof header);
    }
    PMSTORE_TRY_STATUS(memory_->drain());
    PMSTORE_CHECK(section_header(*memory_, extent), "open() would call this header damaged");
    return {};
  };
  PMSTORE_TRY(made.extent,
              pool.allocate_filled(persist::ExtentKind::kFileData, extent_bytes(bytes), fill));
  separate(made.extent);
  next_unit_ = made.first_unit + made.units;
  PMSTORE_CHECK(made.begin() > sections_.back().end(), "numbers of sections never touch");
  sections_.push_back(made);
  return made;
}

Status FileArea::remove_section(persist::Pool& pool, uint64_t first_unit) {
  const auto found =
      std::find_if(sections_.begin(), sections_.end(),
                   [first_unit](const AreaSection& each) { return each.first_unit == first_unit; });
  PMSTORE_CHECK(first_unit != 0 && found != sections_.end(),
                "a later section is removed, once; the first one stays");
  PMSTORE_TRY_STATUS(pool.free_extent(found->extent));
  sections_.erase(found);
  return {};
}

Status format_pool(persist::Pool& pool, const FormatOptions& options) {
  PMSTORE_TRY_STATUS(format_store(pool, options));
  if (options.file_bytes == 0) return {};
  return FileArea::format(pool, options.identity);
}

}  // namespace pmstore::fs
