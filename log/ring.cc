#include "log/ring.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "base/atomic_copy.h"
#include "base/check.h"
#include "base/checksum.h"
#include "log/ring_room.h"
#include "persist/found_pages.h"

namespace pmstore::log {
namespace {

static_assert(persist::TwoCopies<RingHeader>::kCopies * kRingHeaderCopyStride <= kRingHeaderBytes);

uint32_t header_crc(const RingHeader& header, uint32_t salt) {
  constexpr size_t kCovered = offsetof(RingHeader, version);
  return base::crc32c(std::as_bytes(std::span(&header, 1)).subspan(kCovered), salt);
}

// Could this header have been written for a ring of `data_bytes`? The checksum only says that it
// was not damaged; what follows must hold for whatever bytes somebody has put there.
bool is_sane(const RingHeader& header, uint64_t data_bytes) {
  return header.incarnation > 0 && header.data_bytes == data_bytes &&
         is_boundary(header.start_lsn, data_bytes) &&
         is_boundary(header.incarnation_lsn, data_bytes) &&
         header.incarnation_lsn <= header.start_lsn + data_bytes;
}

// Of at least one byte.
bool all_zero(const std::byte* from, size_t bytes) {
  return *from == std::byte{0} && std::memcmp(from, from + 1, bytes - 1) == 0;
}

}  // namespace

Status Ring::check_place(const persist::Memory& memory, uint64_t offset, uint64_t bytes) {
  if (offset % persist::kXpLineBytes == 0 && bytes % persist::kXpLineBytes == 0 &&
      bytes >= kMinRingBytes && memory.contains(offset, bytes)) {
    return {};
  }
  return make_error(
      ErrorCode::kInvalidArgument,
      fmt::format("no ring can be at offset {} with {} bytes in {} bytes of memory: both "
                  "must be multiples of {}, the size at least {}",
                  offset, bytes, memory.bytes(), persist::kXpLineBytes, kMinRingBytes));
}

Ring::Ring(persist::Memory& memory, uint64_t offset, uint64_t bytes, uint32_t salt)
    : memory_(&memory), offset_(offset) {
  position_.data_bytes = bytes - kRingHeaderBytes;
  position_.salt = salt;
}

std::byte* Ring::data_at(uint64_t lsn) const {
  return memory_->at(data_offset() + lsn % position_.data_bytes);
}

// After a crash of the process alone, the header that was found may be only in the CPU's caches;
// and the one before, which is durable, is the next to be overwritten.
Result<persist::Persisted> Ring::make_found_header_durable() {
  if (header_durable_) return *header_durable_;
  persist::make_dirty_again(*memory_, memory_->at(offset_), kRingHeaderBytes);
  persist::make_dirty_again(*memory_, data_at(position_.tail_lsn), sizeof(EntryHeader));
  memory_->flush(memory_->at(offset_), kRingHeaderBytes);
  // Of what it erased at the tail, only the zeros are durable with it that are flushed as well.
  memory_->flush(data_at(position_.tail_lsn), sizeof(EntryHeader));
  PMSTORE_TRY(header_durable_, memory_->drain());
  return *header_durable_;
}

// What a walk would take for damage is never written.
void Ring::check_header(const RingHeader& header) const {
  PMSTORE_CHECK(header.incarnation >= header_.incarnation,
                "entries of a later incarnation would count as those of this one");
  PMSTORE_CHECK(header.start_lsn >= header_.start_lsn || header_.generation == 0,
                "entries that may be overwritten would count again");
}

Result<persist::Persisted> Ring::write_header(RingHeader header) {
  PMSTORE_TRY(const persist::Persisted found, make_found_header_durable());
  header.magic = kRingMagic;
  header.version = kRingFormatVersion;
  header.data_bytes = position_.data_bytes;
  header.generation = header_.generation;
  check_header(header);
  PMSTORE_TRY(header_durable_, header_copies().write(found, header, [this](const RingHeader& next) {
    return header_crc(next, position_.salt);
  }));
  header_ = header;
  header_ours_ = true;
  copies_agree_ = false;
  position_.start_lsn = header.start_lsn;
  position_.incarnation = header.incarnation;
  return *header_durable_;
}

Result<persist::Persisted> Ring::repeat_header() {
  PMSTORE_CHECK(phase_ != Phase::kOpened && phase_ != Phase::kDamaged,
                "a header whose ring was not walked would lose its other copy");
  PMSTORE_TRY(const persist::Persisted durable, write_header(header_));
  copies_agree_ = true;
  return durable;
}

// ---- set-up ----

// Which of the copies an open() would believe; the first when none is valid.
size_t Ring::newest_copy() const {
  const auto found = header_copies().read([this](const RingHeader& header) {
    return header.magic == kRingMagic && header.crc == header_crc(header, position_.salt);
  });
  return *found ? (*found)->copy : 0;
}

Result<persist::Persisted> Ring::erase_header(uint64_t from, uint64_t to) {
  PMSTORE_CHECK(from < to && to <= kRingHeaderBytes, "entries would be erased with the header");
  std::byte* const header = memory_->at(offset_ + from);
  if (!all_zero(header, to - from)) memory_->zero(header, to - from);
  memory_->flush(header, to - from);
  return memory_->drain();
}

// Of the header the newest copy goes last: the one before it, alone, would bring back marks that
// have moved since.
Result<persist::Persisted> Ring::erase_headers() {
  const uint64_t newest = newest_copy() * kRingHeaderCopyStride;
  if (newest > 0) {
    PMSTORE_TRY_STATUS(erase_header(0, newest));
  }
  const uint64_t behind = newest + kRingHeaderCopyStride;
  if (behind < kRingHeaderBytes) {
    PMSTORE_TRY_STATUS(erase_header(behind, kRingHeaderBytes));
  }
  return erase_header(newest, behind);
}

// What is zero is flushed all the same: a process that died here may have left zeros in the CPU's
// caches only.
Result<persist::Persisted> Ring::erase_data(persist::Persisted /*header*/, uint64_t from,
                                            uint64_t to) {
  constexpr size_t kStep = 4096;
  PMSTORE_CHECK(from <= to && to <= position_.data_bytes, "memory of others would be erased");
  for (uint64_t done = from; done < to; done += kStep) {
    std::byte* const data = memory_->at(data_offset() + done);
    const size_t step = std::min<uint64_t>(kStep, to - done);
    if (!all_zero(data, step)) memory_->zero(data, step);
    memory_->flush(data, step);
  }
  return memory_->drain();
}

Result<Ring> Ring::format(persist::Memory& memory, uint64_t offset, uint64_t bytes, uint32_t salt,
                          uint64_t begin_lsn, uint64_t expired_below_sequence) {
  PMSTORE_TRY(RingRoom room, RingRoom::at(memory, offset, bytes, salt));
  PMSTORE_TRY_STATUS(room.erase_some(UINT64_MAX));
  return format(std::move(room), begin_lsn, expired_below_sequence);
}

Result<Ring> Ring::format(RingRoom room, uint64_t begin_lsn, uint64_t expired_below_sequence) {
  PMSTORE_CHECK(room.is_erased(), "what lies there would be taken for entries");
  Ring ring = std::move(room.ring_);
  PMSTORE_CHECK(is_boundary(begin_lsn, ring.position_.data_bytes),
                "open() would refuse this header");
  ring.header_durable_ = room.erased_;  // there is no header now
  RingHeader header{};
  header.incarnation = 1;
  header.start_lsn = begin_lsn;
  header.incarnation_lsn = begin_lsn;
  header.expired_below_sequence = expired_below_sequence;
  PMSTORE_TRY_STATUS(ring.write_header(header));
  ring.position_.tail_lsn = begin_lsn;
  ring.phase_ = Phase::kFormatted;
  return ring;
}

Result<Ring> Ring::open(persist::Memory& memory, uint64_t offset, uint64_t bytes, uint32_t salt) {
  PMSTORE_TRY_STATUS(check_place(memory, offset, bytes));
  Ring ring(memory, offset, bytes, salt);
  const uint64_t data_bytes = ring.position_.data_bytes;
  const auto is_valid = [&](const RingHeader& header) -> Result<bool> {
    if (header.magic != kRingMagic || header.crc != header_crc(header, salt)) return false;
    if (header.version == kRingFormatVersion) return is_sane(header, data_bytes);
    return make_error(ErrorCode::kVersionMismatch,
                      fmt::format("the ring at offset {} has format version {}, this program reads "
                                  "{}: use the program that wrote it",
                                  offset, header.version, kRingFormatVersion));
  };
  PMSTORE_TRY(const auto found, ring.header_copies().read(is_valid));
  if (!found) {
    return make_error(
        ErrorCode::kBadPool,
        fmt::format("no valid ring header at offset {}: both copies are torn, damaged or "
                    "of another pool; restore the pool from a copy",
                    offset));
  }
  ring.header_ = found->header;
  ring.both_copies_ = found->both_valid;
  ring.copies_agree_ = found->copies_agree;
  ring.position_.start_lsn = ring.header_.start_lsn;
  ring.position_.tail_lsn = ring.header_.start_lsn;
  ring.position_.incarnation = ring.header_.incarnation;
  return ring;
}

// ---- reading ----

bool Ring::read_sealed(uint64_t lsn, EntryHeader& header) const {
  if (!is_boundary(lsn, position_.data_bytes)) return false;
  const uint64_t left = position_.data_bytes - lsn % position_.data_bytes;
  const std::byte* const from = data_at(lsn);
  // Copied once: what is checked is what is used, even while somebody writes there.
  base::copy_from_shared(&header, from, sizeof header);
  const bool pad = header.magic == kPadMagic;
  if (!pad && header.magic != kEntryMagic) return false;
  if (header.reserved != 0 || header.incarnation == 0) return false;
  if (pad && (header.padding_bytes != 0 || header.sequence != 0)) return false;
  const uint64_t bytes = entry_bytes(header);
  if (bytes > left || !is_boundary(lsn + bytes, position_.data_bytes)) return false;
  const size_t covered = pad ? 0 : header.payload_bytes;
  return header.crc == entry_crc(header, {from + sizeof header, covered}, position_.salt);
}

bool Ring::belongs(uint64_t lsn, const EntryHeader& header) const {
  const uint64_t next = lsn + entry_bytes(header);
  if (header.lsn != lsn || next > header_.start_lsn + position_.data_bytes) return false;
  if (lsn >= header_.incarnation_lsn) return header.incarnation == header_.incarnation;
  return header.incarnation < header_.incarnation && next <= header_.incarnation_lsn;
}

Status Ring::walk(const std::function<void(const EntryView&)>& visit) {
  uint64_t lsn = header_.start_lsn;
  const uint64_t end = header_.start_lsn + position_.data_bytes;
  uint32_t incarnation = 0;
  bool newer = false;
  EntryHeader header;
  while (lsn < end && read_sealed(lsn, header)) {
    // The header was durable before anything was written that only it allows.
    newer = header.incarnation > header_.incarnation || (header.lsn > lsn && header.lsn >= end);
    if (!belongs(lsn, header) || header.incarnation < incarnation) break;
    incarnation = header.incarnation;
    const uint64_t next = lsn + entry_bytes(header);
    if (header.magic == kEntryMagic) visit(view(header));
    lsn = next;
  }
  position_.tail_lsn = lsn;
  if (newer && header_ours_) {
    // There is no such header: somebody who may write into the data area has forged it. Erased, it
    // is not taken for a lost header at the next start.
    memory_->zero(data_at(lsn), sizeof header);
    memory_->flush(data_at(lsn), sizeof header);
    PMSTORE_TRY([[maybe_unused]] auto durable, memory_->drain());
    newer = false;
  }
  if (lsn < header_.incarnation_lsn || newer) {
    phase_ = Phase::kDamaged;
    return make_error(
        ErrorCode::kBadPool,
        fmt::format("the ring at offset {} is damaged: {} at lsn {}; restore the pool from a copy",
                    offset_,
                    newer ? "the last header is lost, later entries are there"
                          : "an entry is gone that was durable",
                    lsn));
  }
  check_position();
  phase_ = Phase::kWalked;
  return {};
}

EntryView Ring::view(const EntryHeader& header) const {
  return {header.lsn,
          header.lsn + entry_bytes(header),
          header.sequence,
          header.incarnation,
          {data_at(header.lsn) + sizeof header, header.payload_bytes}};
}

Result<EntryView> Ring::entry_at(uint64_t lsn) const {
  EntryHeader header;
  const bool inside = lsn >= header_.start_lsn && lsn - header_.start_lsn < position_.data_bytes;
  if (inside && read_sealed(lsn, header) && belongs(lsn, header) && header.magic == kEntryMagic) {
    return view(header);
  }
  return make_error(
      ErrorCode::kBadPool,
      fmt::format("no valid entry at lsn {} of the ring at offset {}: not written, or "
                  "truncated",
                  lsn, offset_));
}

bool Ring::for_each_entry(const std::function<void(const EntryView&)>& visit,
                          uint64_t through_lsn) const {
  EntryHeader header;
  uint64_t visited_lsn = header_.start_lsn;
  for (uint64_t lsn = visited_lsn; lsn < position_.tail_lsn && visited_lsn < through_lsn;) {
    if (!read_sealed(lsn, header) || !belongs(lsn, header)) return false;
    lsn += entry_bytes(header);
    if (header.magic != kEntryMagic) continue;  // behind a pad comes an entry
    visit(view(header));
    visited_lsn = lsn;
  }
  return true;
}

void Ring::for_each_landed(const std::function<void(const EntryView&)>& visit) const {
  EntryHeader header;
  const uint64_t end = header_.start_lsn + position_.data_bytes;
  for (uint64_t lsn = position_.tail_lsn; lsn < end; lsn += entry_bytes(header)) {
    if (!read_sealed(lsn, header) || !belongs(lsn, header)) return;
    if (header.magic == kEntryMagic) visit(view(header));
  }
}

// ---- changing ----

// After a crash of the process alone, entries that the walk has seen may still be in the CPU's
// caches. The header of the new incarnation says that they are durable; so make them.
Result<persist::Persisted> Ring::make_walked_durable() {
  PMSTORE_CHECK(phase_ != Phase::kOpened, "the entries are known only after a walk");
  check_position();
  const uint64_t from = std::max(header_.start_lsn, durable_lsn_);
  if (from >= position_.tail_lsn) return make_found_header_durable();
  for (uint64_t lsn = from; lsn < position_.tail_lsn;) {
    const uint64_t left = position_.data_bytes - lsn % position_.data_bytes;
    const uint64_t bytes = std::min(left, position_.tail_lsn - lsn);
    persist::make_dirty_again(*memory_, data_at(lsn), bytes);
    memory_->flush(data_at(lsn), bytes);
    lsn += bytes;
  }
  // One drain for both.
  PMSTORE_TRY(const persist::Persisted durable,
              header_durable_ ? memory_->drain() : make_found_header_durable());
  durable_lsn_ = position_.tail_lsn;
  return durable;
}

Status Ring::erase_leftovers() {
  PMSTORE_CHECK(phase_ == Phase::kFormatted || phase_ == Phase::kWalked,
                "what may go is known only after a walk");
  bool empty = true;
  if (!for_each_entry([&](const EntryView&) { empty = false; }) || !empty) {
    return make_error(
        ErrorCode::kInvalidArgument,
        fmt::format("the ring at offset {} has entries: truncate it before it is erased", offset_));
  }
  // Durable before anything goes: an earlier header would miss what it has marked.
  PMSTORE_TRY(const persist::Persisted header, make_found_header_durable());
  // A pad may be left, whose entry has never come.
  if (header_.start_lsn != position_.tail_lsn) {
    PMSTORE_TRY_STATUS(truncate(header, position_.tail_lsn, header_.expired_below_sequence));
  }
  PMSTORE_TRY_STATUS(erase_data(*header_durable_, 0, position_.data_bytes));
  return {};
}

Status Ring::take_over(uint64_t owner, uint32_t least_incarnation,
                       uint64_t expired_below_sequence) {
  PMSTORE_CHECK(phase_ == Phase::kFormatted || phase_ == Phase::kWalked,
                "where the last writer's entries end is known only after a walk");
  if (header_.incarnation == UINT32_MAX) {
    return make_error(
        ErrorCode::kFull,
        fmt::format("the ring at offset {} has had all its {} writers: format it again", offset_,
                    UINT32_MAX));
  }
  if (owner == header_.owner) {
    PMSTORE_TRY_STATUS(make_walked_durable());
  }
  RingHeader header = header_;
  header.incarnation = std::max(header.incarnation + 1, least_incarnation);
  header.incarnation_lsn = position_.tail_lsn;
  if (owner != header.owner) {
    header.owner = owner;
    header.start_lsn = position_.tail_lsn;
    header.expired_below_sequence = expired_below_sequence;
  }
  PMSTORE_TRY(const persist::Persisted durable, write_header(header));
  begin_appends(durable);
  return {};
}

void Ring::begin_appends(persist::Persisted /*header*/) {
  PMSTORE_CHECK(phase_ == Phase::kFormatted || phase_ == Phase::kWalked,
                "a new incarnation begins where a walk, or a format, has found the tail");
  PMSTORE_CHECK(header_.incarnation_lsn == position_.tail_lsn,
                "an older entry behind the tail would count as one of this incarnation");
  check_position();
  phase_ = Phase::kWritable;
}

Status Ring::note_tail(uint64_t lsn) {
  check_writable();
  if (lsn < position_.tail_lsn || lsn - position_.start_lsn > position_.data_bytes ||
      !is_boundary(lsn, position_.data_bytes)) {
    return make_error(
        ErrorCode::kInvalidArgument,
        fmt::format("no entry of the ring at offset {} can end at lsn {}: it starts at {}, "
                    "ends at {} and has {} bytes",
                    offset_, lsn, position_.start_lsn, position_.tail_lsn, position_.data_bytes));
  }
  position_.tail_lsn = lsn;
  check_position();
  phase_ = Phase::kWritable;
  return {};
}

Status Ring::truncate(persist::Persisted /*applied*/, uint64_t start_lsn,
                      uint64_t expired_below_sequence) {
  PMSTORE_CHECK(phase_ != Phase::kOpened && phase_ != Phase::kDamaged,
                "what may be truncated is known only after a walk");
  if (start_lsn < header_.start_lsn || start_lsn > position_.tail_lsn ||
      !is_boundary(start_lsn, position_.data_bytes) ||
      expired_below_sequence < header_.expired_below_sequence) {
    return make_error(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "cannot truncate the ring at offset {} to lsn {}, sequence {}: it has lsn {} to {} "
            "and sequences from {}; neither may go back",
            offset_, start_lsn, expired_below_sequence, header_.start_lsn, position_.tail_lsn,
            header_.expired_below_sequence));
  }
  RingHeader header = header_;
  header.start_lsn = start_lsn;
  header.expired_below_sequence = expired_below_sequence;
  PMSTORE_TRY_STATUS(write_header(header));
  check_position();
  return {};
}

}  // namespace pmstore::log
