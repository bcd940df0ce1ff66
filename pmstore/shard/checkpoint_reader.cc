#include "pmstore/shard/checkpoint_reader.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

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

using SectionName = std::array<char, kSectionNameBytes>;
using SectionKey = std::pair<SectionName, uint32_t>;

SectionName padded(std::string_view name) {
  SectionName all{};
  PMSTORE_CHECK(name.size() <= all.size(), "no section has a longer name");
  std::copy(name.begin(), name.end(), all.begin());
  return all;
}

SectionKey key_of(const CheckpointSection& section) {
  SectionKey key{{}, section.part};
  std::memcpy(key.first.data(), section.name, sizeof(section.name));
  return key;
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

CheckpointReader::Content::Content(persist::Pool& pool, const persist::Extent& extent)
    : file_(persist::FileReads::of(pool)), extent_offset_(extent.offset) {
  if (!pool.memory().contains(extent.offset, extent.bytes)) return;  // then it has no bytes
  mapped_ = pool.memory().mapping().subspan(extent.offset, extent.bytes);
}

bool CheckpointReader::Content::copy(uint64_t offset, std::span<std::byte> to) const {
  if (offset > mapped_.size() || to.size() > mapped_.size() - offset) return false;
  if (to.empty()) return true;
  if (file_ != nullptr) return file_->read(extent_offset_ + offset, to).has_value();
  std::memcpy(to.data(), mapped_.data() + offset, to.size());
  return true;
}

Result<CheckpointReader> CheckpointReader::open(persist::Pool& pool, const persist::Extent& extent,
                                                const CatalogHeader& catalog) {
  const Content content(pool, extent);
  CheckpointHeader header;
  const auto read = content.copy(0, std::as_writable_bytes(std::span(&header, 1)));
  if (!read || !is_whole(header, extent.bytes)) return damaged_part("header");
  if (header.pool != catalog.pool || header.epoch != catalog.epoch ||
      header.generation != catalog.generation) {
    return make_error(ErrorCode::kNotFound, "it is of another state of the pool");
  }
  CheckpointReader reader(content, header);
  PMSTORE_TRY_STATUS(reader.read_directory());
  return reader;
}

Status CheckpointReader::read_directory() {
  std::vector<std::byte> directory(header_.directory_bytes);
  if (!content_.copy(header_.directory_offset, directory)) return damaged_part("directory");
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
  sort_sections();
  return sums == sums_.size() ? Status() : damaged_part("directory");
}

void CheckpointReader::sort_sections() {
  by_name_.resize(sections_.size());
  std::iota(by_name_.begin(), by_name_.end(), 0);
  std::sort(by_name_.begin(), by_name_.end(),
            [&](uint32_t a, uint32_t b) { return key_of(sections_[a]) < key_of(sections_[b]); });
}

CheckpointReader::Section CheckpointReader::section_at(size_t index) const {
  const CheckpointSection& section = sections_[index];
  const auto sums = std::span(sums_).subspan(first_sums_[index], blocks_of(section.bytes));
  return {content_, section, sums, header_.generation};
}

std::optional<CheckpointReader::Section> CheckpointReader::section(std::string_view name,
                                                                   uint32_t part) const {
  const SectionKey key{padded(name), part};
  const auto found =
      std::lower_bound(by_name_.begin(), by_name_.end(), key,
                       [&](uint32_t i, const auto& k) { return key_of(sections_[i]) < k; });
  if (found == by_name_.end() || key_of(sections_[*found]) != key) return std::nullopt;
  return section_at(*found);
}

uint32_t CheckpointReader::parts(std::string_view name) const {
  const SectionName named = padded(name);
  return static_cast<uint32_t>(std::count_if(
      sections_.begin(), sections_.end(),
      [&](const CheckpointSection& section) { return key_of(section).first == named; }));
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

CheckpointReader::Section::Section(const Content& content, const CheckpointSection& section,
                                   std::span<const uint64_t> sums, uint64_t generation)
    : content_(content),
      sums_(sums),
      generation_(generation),
      offset_(section.offset),
      left_(section.bytes),
      block_(std::min<uint64_t>(section.bytes, kCheckpointBlockBytes)) {}

bool CheckpointReader::Section::next_block() {
  if (failed_ || left_ == 0) {
    failed_ = true;
    return false;
  }
  filled_ = std::min(left_, kCheckpointBlockBytes);
  used_ = 0;
  const auto block = std::span(block_).first(filled_);
  failed_ = !content_.copy(offset_, block) ||
            base::checksum64(block, block_seed(generation_, offset_)) != sums_.front();
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
