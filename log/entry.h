// One entry of a ring: where it goes, and its bytes. Pure functions over plain data; any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/check.h"
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
  uint64_t at = 0;     // of the entry in the data area
  uint64_t next_lsn() const { return lsn + bytes; }
};

// Largest payload of a ring of this size: a little under half of the data area, so that an empty
// ring takes it wherever its tail is.
constexpr uint64_t max_payload_bytes(uint64_t data_bytes) {
  constexpr uint64_t kMaxEntryPayload = uint64_t{1} << 30;
  // Worst case: the tail lies one byte too far for alignment gap (< 2 units) and entry, so that pad
  // and entry together take just under gap + 2 * entry, which must not be more than the data area.
  const uint64_t half = persist::round_down(data_bytes / 2, persist::kXpLineBytes);
  constexpr uint64_t kOverhead = persist::kXpLineBytes + sizeof(EntryHeader);
  return half <= kOverhead ? 0 : std::min(half - kOverhead, kMaxEntryPayload);
}

// Places an entry of `payload_bytes` at the tail: aligned and padded to the unit that `rules` ask
// for, and not across the end of the data area. Nothing when it does not fit. Inline: it is a good
// part of a small append.
inline std::optional<PlannedEntry> place_entry(const RingPosition& position, uint64_t payload_bytes,
                                               bool one_sided,
                                               const persist::PaddingRules& rules = {}) {
  if (payload_bytes > max_payload_bytes(position.data_bytes)) return std::nullopt;
  const uint64_t used = sizeof(EntryHeader) + payload_bytes;
  const uint64_t unit = persist::padding_unit(used, one_sided, rules);
  const uint64_t tail = position.tail_lsn % position.data_bytes;
  const uint64_t left = position.data_bytes - tail;
  uint64_t bytes = persist::round_up_to_power(used, unit);
  uint64_t gap = persist::round_up_to_power(tail, unit) - tail;
  // A gap must have room for a pad entry's header. (Only after entries that were written without
  // padding rules can it be too small.)
  if (gap > 0 && gap < sizeof(EntryHeader)) gap += unit;
  if (gap + bytes > left) gap = left;
  // So must what is left behind the entry; else the entry takes it too.
  const uint64_t behind = gap == left ? position.data_bytes - bytes : left - gap - bytes;
  if (behind < sizeof(EntryHeader)) bytes += behind;
  if (gap + bytes > position.free_bytes()) return std::nullopt;
  // Behind it is_boundary() must hold: an entry that ends above is lost at the next start.
  if (position.tail_lsn + gap + bytes >= kMaxLsn) [[unlikely]]
    return std::nullopt;
  return PlannedEntry{position.tail_lsn, gap, position.tail_lsn + gap, bytes,
                      gap == left ? 0 : tail + gap};
}
// The same, and why not: BackPressure when it does not fit until truncation; TooLarge when it can
// never fit (over max_payload_bytes()); Full when it would end at kMaxLsn or above.
Result<PlannedEntry> plan_entry(const RingPosition& position, uint64_t payload_bytes,
                                bool one_sided, const persist::PaddingRules& rules = {});

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
inline EntryHeader entry_header(const PlannedEntry& plan, const RingPosition& position,
                                uint64_t payload_bytes, uint64_t sequence) {
  const uint64_t used = sizeof(EntryHeader) + payload_bytes;
  PMSTORE_CHECK(plan.bytes >= used && plan.bytes - used <= UINT8_MAX,
                "the plan is for another payload");
  EntryHeader header{};
  header.magic = kEntryMagic;
  header.padding_bytes = static_cast<uint8_t>(plan.bytes - used);
  header.lsn = plan.lsn;
  header.payload_bytes = static_cast<uint32_t>(payload_bytes);
  header.incarnation = position.incarnation;
  header.sequence = sequence;
  return header;
}

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
