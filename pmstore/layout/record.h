// Building and checking records (pmstore/layout/record_layout.h) in plain memory. No state, any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "pmstore/layout/lock_word.h"
#include "pmstore/layout/record_layout.h"
#include "pmstore/types.h"

namespace pmstore {

// A record with a higher version is not valid: its slot's lock word could not show the version, and
// would start anew. The word of a slot that is freed may be one above its record's.
inline constexpr uint64_t kMaxRecordVersion = LockWord::kVersionMask - 1;

struct RecordView {
  const RecordHeader* header;
  std::string_view key;
  std::string_view value;
  uint64_t version() const { return header->version; }
  bool live() const { return header->state == RecordState::kLive; }
  uint64_t bytes() const { return record_bytes(key.size(), value.size()); }
};

// Lays out a record in `image`, which has at least record_bytes() bytes; gives its size.
size_t build_record(std::span<std::byte> image, SlotOffset slot, TableId table, uint64_t version,
                    RecordState state, std::string_view key, std::string_view value);

// The record in `image` (copied out of its slot, 8-aligned) if it is whole and checks for `slot`.
std::optional<RecordView> check_record(std::span<const std::byte> image, SlotOffset slot);

// The same, and copies the value to `value` in the pass that checks the record; only if it is not
// larger than `value`. Of a record that does not check, `value` may have got any bytes. No
// writer changes `image` meanwhile.
std::optional<RecordView> check_and_copy_record(std::span<const std::byte> image, SlotOffset slot,
                                                std::span<std::byte> value);

// True when a record header is all zero: the slot was never written since its slab was made.
bool never_written(std::span<const std::byte> image);

}  // namespace pmstore
