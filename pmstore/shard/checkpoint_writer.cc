#include "pmstore/shard/checkpoint_writer.h"

#include <algorithm>

#include "base/check.h"
#include "base/checksum.h"
#include "persist/padding.h"

namespace pmstore::internal {

CheckpointWriter::CheckpointWriter(persist::Memory* memory, uint64_t offset,
                                   const Identity& identity)
    : memory_(memory), offset_(offset), identity_(identity), block_(kCheckpointBlockBytes) {}

void CheckpointWriter::begin_section(std::string_view name, uint32_t part) {
  PMSTORE_CHECK(!name.empty() && name.size() <= kSectionNameBytes, "the directory has the name");
  end_section();
  position_ = persist::round_up(position_, kCheckpointAlignment);
  CheckpointSection section{};
  std::memcpy(section.name, name.data(), name.size());
  section.part = part;
  section.offset = position_;
  sections_.push_back(section);
}

void CheckpointWriter::put_over_blocks(const std::byte* from, size_t bytes) {
  while (bytes > 0) {
    if (filled_ == kCheckpointBlockBytes) end_block();
    const size_t piece = std::min(bytes, kCheckpointBlockBytes - filled_);
    std::memcpy(block_.data() + filled_, from, piece);
    filled_ += piece;
    from += piece;
    bytes -= piece;
  }
}

void CheckpointWriter::end_block() {
  PMSTORE_CHECK(!sections_.empty(), "what is put belongs to a section");
  const auto block = std::span(block_).first(filled_);
  sums_.push_back(base::checksum64(block, block_seed(identity_.generation, position_)));
  if (memory_ != nullptr) memory_->write(memory_->at(offset_ + position_), block.data(), filled_);
  position_ += filled_;
  filled_ = 0;
}

void CheckpointWriter::end_section() {
  if (sections_.empty()) return;
  if (filled_ > 0) end_block();
  sections_.back().bytes = position_ - sections_.back().offset;
}

std::vector<std::byte> CheckpointWriter::directory() const {
  const auto sections = std::as_bytes(std::span(sections_));
  const auto sums = std::as_bytes(std::span(sums_));
  std::vector<std::byte> all(sections.begin(), sections.end());
  all.insert(all.end(), sums.begin(), sums.end());
  return all;
}

Status CheckpointWriter::finish() {
  end_section();
  position_ = persist::round_up(position_, kCheckpointAlignment);
  const std::vector<std::byte> directory = this->directory();
  CheckpointHeader header{};
  header.magic = kCheckpointMagic;
  header.version = kCheckpointVersion;
  header.pool = identity_.pool;
  header.epoch = identity_.epoch;
  header.generation = identity_.generation;
  header.directory_offset = position_;
  header.directory_bytes = directory.size();
  header.directory_sum = base::checksum64(directory, block_seed(identity_.generation, position_));
  header.sections = static_cast<uint32_t>(sections_.size());
  position_ += directory.size();
  header.bytes = position_;
  if (memory_ == nullptr) return {};
  memory_->write(memory_->at(offset_ + header.directory_offset), directory.data(),
                 directory.size());
  PMSTORE_TRY(const persist::Persisted content, memory_->drain());
  return write_header(content, header);
}

Status CheckpointWriter::write_header(persist::Persisted /*content*/, CheckpointHeader header) {
  const auto covered = std::as_bytes(std::span(&header, 1));
  header.crc = base::crc32c(covered.subspan(offsetof(CheckpointHeader, pool)));
  memory_->write(memory_->at(offset_), &header, sizeof(header));
  PMSTORE_TRY_STATUS(memory_->drain());
  return {};
}

}  // namespace pmstore::internal
