// One entry of a ring: where it goes, and its bytes. Pure functions over plain data; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "log/ring_layout.h"
#include "persist/padding.h"

namespace pmstore::log {

// Where the next entry goes and how far it may go. What an appender must know about a ring.
struct RingPosition {
  uint64_t data_bytes = 0;  // a multiple of 256
  uint64_t start_lsn = 0;
  uint64_t tail_lsn = 0;
  uint32_t incarnation = 0;
  // Seeds every checksum of this ring: entries of another ring or pool are not valid here.
  uint32_t salt = 0;

  uint64_t free_bytes() const { return data_bytes - (tail_lsn - start_lsn); }
};

// One entry to write: a pad entry when pad_bytes > 0, at `pad_lsn`, then the entry itself at `lsn`.
// Either may be at the end of the data area, so the two are not always neighbours there.
struct PlannedEntry {
  uint64_t pad_lsn = 0;
  uint64_t pad_bytes = 0;  // 0, or at least sizeof(EntryHeader)
  uint64_t lsn = 0;
  uint64_t bytes = 0;  // header + payload + padding
  uint64_t next_lsn() const { return lsn + bytes; }
};

// Places an entry of `payload_bytes` at the tail: aligned and padded to the unit that `rules` ask
// for, and not across the end of the data area. BackPressure when it does not fit until truncation;
// TooLarge when it can never fit (over max_payload_bytes()).
Result<PlannedEntry> plan_entry(const RingPosition& position, uint64_t payload_bytes,
                                bool one_sided, const persist::PaddingRules& rules = {});

// Largest payload of a ring of this size: a little under half of the data area, so that an empty
// ring takes it wherever its tail is.
uint64_t max_payload_bytes(uint64_t data_bytes);

// Room that a buffer needs for any entry with this payload, wherever it is placed.
constexpr uint64_t entry_room(uint64_t payload_bytes) {
  return persist::round_up(2 * sizeof(EntryHeader) + payload_bytes, persist::kXpLineBytes);
}

// May an entry start or end at `lsn`? What is left of the data area must hold a header or be
// nothing.
constexpr bool is_boundary(uint64_t lsn, uint64_t data_bytes) {
  return lsn % kLsnUnit == 0 && lsn < kMaxLsn &&
         data_bytes - lsn % data_bytes >= sizeof(EntryHeader);
}

// Writes header and padding around a payload that is already at buffer + sizeof(EntryHeader).
// `buffer` has plan.bytes bytes. One pass of the checksum.
void seal_entry(std::span<std::byte> buffer, const PlannedEntry& plan, const RingPosition& position,
                uint64_t payload_bytes, uint64_t sequence);

// The header of that entry, without its checksum.
EntryHeader entry_header(const PlannedEntry& plan, const RingPosition& position,
                         uint64_t payload_bytes, uint64_t sequence);

// How much of a pad entry is written: its header, and zeros to the end of its line (rules H6, H7).
inline constexpr uint64_t kMaxPadWriteBytes = 64;
// Fills `buffer` and gives how many bytes of it to write at plan.pad_lsn.
uint64_t seal_pad(std::span<std::byte, kMaxPadWriteBytes> buffer, const PlannedEntry& plan,
                  const RingPosition& position);

// The checksum that `header` must carry.
uint32_t entry_crc(const EntryHeader& header, std::span<const std::byte> payload, uint32_t salt);

// Bytes from the start of an entry to the next.
constexpr uint64_t entry_bytes(const EntryHeader& header) {
  return sizeof(EntryHeader) + uint64_t{header.payload_bytes} + header.padding_bytes;
}

struct EntryView {
  uint64_t lsn;
  uint64_t next_lsn;
  uint64_t sequence;
  uint32_t incarnation;
  std::span<const std::byte> payload;  // in the ring
};

}  // namespace pmstore::log
