#include "pmstore/shard/checkpoint_reader.h"

#include <algorithm>

#include "base/check.h"
#include "base/checksum.h"

namespace pmstore::internal {

namespace {

Error damaged_part(const char* what) {
  return make_error(ErrorCode::kDamaged, std::string("its ") + what + " is damaged");
}

uint64_t blocks_of(uint64_t bytes) {
  return bytes / kCheckpointBlockBytes + (bytes % kCheckpointBlockBytes != 0 ? 1 : 0);
}

bool is_whole(const CheckpointHeader& header, uint64_t extent_bytes) {
  const auto covered = std::as_bytes(std::span(&header, 1));
  return header.magic == kCheckpointMagic && header.version == kCheckpointVersion &&
         header.crc == base::crc32c(covered.subspan(offsetof(CheckpointHeader, pool))) &&
         header.bytes <= extent_bytes && header.directory_bytes <= header.bytes &&
         header.directory_offset == header.bytes - header.directory_bytes &&
         header.sections <= header.directory_bytes / sizeof(CheckpointSection);
}

}  // namespace

Result<CheckpointReader> CheckpointReader::open(const persist::Memory& memory,
                                                const persist::Extent& extent,
                                                const CatalogHeader& catalog) {
  CheckpointHeader header;
  if (!memory.contains(extent.offset, extent.bytes) || extent.bytes < sizeof(header)) {
    return damaged_part("extent");
  }
  std::memcpy(&header, memory.at(extent.offset), sizeof(header));
  if (!is_whole(header, extent.bytes)) return damaged_part("header");
  if (header.pool != catalog.pool || header.epoch != catalog.epoch ||
      header.generation != catalog.generation) {
    return make_error(ErrorCode::kNotFound, "it is of another state of the pool");
  }
  CheckpointReader reader(memory.mapping().subspan(extent.offset, header.bytes), header);
  PMSTORE_TRY_STATUS(reader.read_directory());
  return reader;
}

Status CheckpointReader::read_directory() {
  const auto found = content_.subspan(header_.directory_offset, header_.directory_bytes);
  const std::vector<std::byte> directory(found.begin(), found.end());
  const uint64_t seed = block_seed(header_.generation, header_.directory_offset);
  if (base::checksum64(directory, seed) != header_.directory_sum) return damaged_part("directory");
  const uint64_t sections_bytes = header_.sections * sizeof(CheckpointSection);
  sections_.resize(header_.sections);
  sums_.resize((directory.size() - sections_bytes) / sizeof(uint64_t));
  if (!sections_.empty()) std::memcpy(sections_.data(), directory.data(), sections_bytes);
  if (!sums_.empty()) {
    std::memcpy(sums_.data(), directory.data() + sections_bytes, sums_.size() * sizeof(uint64_t));
  }
  size_t sums = 0;
  for (const CheckpointSection& section : sections_) {
    const bool inside = section.offset <= header_.directory_offset &&
                        section.bytes <= header_.directory_offset - section.offset;
    if (!inside || blocks_of(section.bytes) > sums_.size() - sums) return damaged_part("directory");
    first_sums_.push_back(sums);
    sums += blocks_of(section.bytes);
  }
  return sums == sums_.size() ? Status() : damaged_part("directory");
}

bool CheckpointReader::is_named(const CheckpointSection& section, std::string_view name) const {
  char padded[kSectionNameBytes] = {};
  PMSTORE_CHECK(name.size() <= sizeof(padded), "no section has a longer name");
  std::memcpy(padded, name.data(), name.size());
  return std::memcmp(padded, section.name, sizeof(padded)) == 0;
}

CheckpointReader::Section CheckpointReader::section_at(size_t index) const {
  const CheckpointSection& section = sections_[index];
  const auto sums = std::span(sums_).subspan(first_sums_[index], blocks_of(section.bytes));
  return {content_.subspan(section.offset, section.bytes), sums, header_.generation,
          section.offset};
}

std::optional<CheckpointReader::Section> CheckpointReader::section(std::string_view name,
                                                                   uint32_t part) const {
  for (size_t i = 0; i < sections_.size(); ++i) {
    if (sections_[i].part == part && is_named(sections_[i], name)) return section_at(i);
  }
  return std::nullopt;
}

uint32_t CheckpointReader::parts(std::string_view name) const {
  return static_cast<uint32_t>(
      std::count_if(sections_.begin(), sections_.end(),
                    [&](const CheckpointSection& section) { return is_named(section, name); }));
}

Status CheckpointReader::verify() const {
  for (size_t i = 0; i < sections_.size(); ++i) {
    Section section = section_at(i);
    for (uint64_t blocks = blocks_of(sections_[i].bytes); blocks > 0; --blocks) {
      if (!section.next_block()) return damaged_part("content");
    }
  }
  return {};
}

CheckpointReader::Section::Section(std::span<const std::byte> content,
                                   std::span<const uint64_t> sums, uint64_t generation,
                                   uint64_t offset)
    : content_(content),
      sums_(sums),
      generation_(generation),
      offset_(offset),
      left_(content.size()),
      block_(std::min<uint64_t>(content.size(), kCheckpointBlockBytes)) {}

bool CheckpointReader::Section::next_block() {
  if (failed_ || left_ == 0) {
    failed_ = true;
    return false;
  }
  filled_ = std::min(left_, kCheckpointBlockBytes);
  used_ = 0;
  std::memcpy(block_.data(), content_.data() + (content_.size() - left_), filled_);
  const auto block = std::span(block_).first(filled_);
  failed_ = base::checksum64(block, block_seed(generation_, offset_)) != sums_.front();
  sums_ = sums_.subspan(1);
  offset_ += filled_;
  left_ -= filled_;
  if (failed_) filled_ = 0;
  return !failed_;
}

bool CheckpointReader::Section::read_over_blocks(std::byte* to, size_t bytes) {
  while (bytes > 0) {
    if (used_ == filled_ && !next_block()) return false;
    const size_t piece = std::min(bytes, filled_ - used_);
    std::memcpy(to, block_.data() + used_, piece);
    used_ += piece;
    to += piece;
    bytes -= piece;
  }
  return true;
}

}  // namespace pmstore::internal
