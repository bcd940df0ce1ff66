#include "pmstore/shard/slot_probe.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "pmstore/layout/record_layout.h"
#include "pmstore/layout/size_class.h"

namespace pmstore::internal {

SlotProbe::SlotProbe(const persist::Pool& pool, const SlabArena& arena)
    : file_(persist::FileReads::of(pool)), arena_(arena) {
  if (file_ != nullptr) window_.resize(kWindowBytes);
}

bool SlotProbe::read_window(uint64_t at, size_t bytes) {
  PMSTORE_CHECK(bytes <= window_.size(), "the window has memory for what is read");
  window_at_ = at;
  window_bytes_ = file_->read(at, std::span(window_).first(bytes)) ? bytes : 0;
  return window_bytes_ > 0;
}

// Of a record; empty: it cannot be read. Where something behind it cannot, it is read alone.
std::span<const std::byte> SlotProbe::header_at(uint64_t at, uint64_t end_of_slab) {
  constexpr size_t kBytes = sizeof(RecordHeader);
  const bool is_there = at >= window_at_ && at + kBytes <= window_at_ + window_bytes_;
  if (!is_there && !read_window(at, std::min<uint64_t>(kWindowBytes, end_of_slab - at)) &&
      !read_window(at, kBytes)) {
    return {};
  }
  return std::span(window_).subspan(at - window_at_, kBytes);
}

bool SlotProbe::is_readable(uint64_t from, uint64_t end) {
  while (from < end) {
    const uint64_t window_end = window_at_ + window_bytes_;
    if (from >= window_at_ && from < window_end) {
      from = window_end;
      continue;
    }
    if (!read_window(from, std::min<uint64_t>(kWindowBytes, end - from))) return false;
  }
  return true;
}

bool SlotProbe::may_be_live(const SlabArena::Slab& slab, SlotOffset slot) {
  if (file_ == nullptr) return true;
  const uint64_t at = arena_.pool_offset(slot);
  const uint64_t slot_bytes = kSlotBytes[slab.size_class];
  const uint64_t end_of_slab =
      arena_.pool_offset(arena_.slot_of(slab, 0)) + slots_per_slab(slab.size_class) * slot_bytes;
  PMSTORE_CHECK(at + slot_bytes <= end_of_slab, "the slot is one of the slab's");
  const std::span<const std::byte> bytes = header_at(at, end_of_slab);
  if (bytes.empty()) return false;
  RecordHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.state != RecordState::kLive) return false;
  const uint64_t record = record_bytes(header.key_bytes(), header.value_bytes);
  return is_readable(at, at + std::min(record, slot_bytes));
}

}  // namespace pmstore::internal
