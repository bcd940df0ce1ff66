// The persistent layout of a record: header, key, value, padding. What lies behind that in the slot
// does not count.
//
// A record is valid when its checksum (XXH3-64 over everything from `version` to the end of the
// value, seeded with the slot's offset) is right and its version is above its slab's base version
// and at most kMaxRecordVersion (pmstore/layout/record.h).
// A tombstone is a record without a value that keeps key and version of what was deleted.
// Records of releases whose keys had at most 255 bytes have a zero as the higher byte of the key's
// length. So they are read as they are.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pmstore {

enum class RecordState : uint8_t { kNever = 0, kLive = 1, kTombstone = 2 };

struct RecordHeader {
  uint64_t checksum;
  uint64_t version;
  uint32_t value_bytes;
  uint16_t table;
  uint8_t key_bytes_low;
  RecordState state;
  uint8_t key_bytes_high;
  uint8_t reserved[7];  // zero; checked

  constexpr uint16_t key_bytes() const {
    return static_cast<uint16_t>(key_bytes_high << 8 | key_bytes_low);
  }
  constexpr void set_key_bytes(uint16_t bytes) {
    key_bytes_low = static_cast<uint8_t>(bytes);
    key_bytes_high = static_cast<uint8_t>(bytes >> 8);
  }
};
static_assert(sizeof(RecordHeader) == 32 && offsetof(RecordHeader, version) == 8 &&
              offsetof(RecordHeader, value_bytes) == 16 &&
              offsetof(RecordHeader, key_bytes_low) == 22 && offsetof(RecordHeader, state) == 23 &&
              offsetof(RecordHeader, key_bytes_high) == 24);

constexpr uint64_t record_bytes(uint64_t key_bytes, uint64_t value_bytes) {
  return sizeof(RecordHeader) + key_bytes + value_bytes;
}

}  // namespace pmstore
