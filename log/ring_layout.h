// The persistent layout of a ring: kRingHeaderBytes with two copies of the header, then the data
// area. docs/log.md describes it with an example.
//
// LSNs are byte positions that only grow; the entry `lsn` lies at data offset lsn % data_bytes and
// never crosses the end of the data area. An entry is header, payload, zero padding, and says its
// own length, so a walk does not depend on which padding rules its writer had. Where an entry
// cannot start (it must be aligned, or would cross the end), a pad entry says how far to skip.
// Integers are little endian.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace pmstore::log {

static_assert(std::endian::native == std::endian::little, "the layout is written as it is");

inline constexpr uint32_t kRingMagic = 0x474e5250;  // "PRNG"
inline constexpr uint16_t kEntryMagic = 0x4e45;     // "EN"
inline constexpr uint16_t kPadMagic = 0x4150;       // "PA"
inline constexpr uint32_t kRingFormatVersion = 1;
inline constexpr uint64_t kRingHeaderBytes = 256;
inline constexpr uint64_t kRingHeaderCopyStride =
    128;                                 // copy `generation % 2` lies at this times it
inline constexpr uint64_t kLsnUnit = 8;  // LSNs and lengths are multiples of it
inline constexpr uint64_t kMinRingBytes = 16 * 1024;
inline constexpr uint64_t kMaxLsn = uint64_t{1} << 62;  // so that no sum of LSNs overflows

// Two copies, written in turn, so that a torn header leaves the one before. The valid one with the
// higher `generation` counts.
struct RingHeader {
  uint32_t magic;
  uint32_t crc;  // of everything after this field, seeded with the ring's salt
  uint32_t version;
  uint32_t incarnation;             // raised each time a writer takes the ring over
  uint64_t generation;              // raised by each header write
  uint64_t owner;                   // whose entries these are; 0: nobody's
  uint64_t start_lsn;               // truncated-through mark: entries below may be overwritten
  uint64_t expired_below_sequence;  // entries with a sequence below may have been truncated
  uint64_t data_bytes;
  // Where the present incarnation began. From here on, only its entries are valid; before, only
  // those of earlier ones, and all of them were there when it began.
  uint64_t incarnation_lsn;
};
static_assert(sizeof(RingHeader) == 64 && offsetof(RingHeader, crc) == 4 &&
              offsetof(RingHeader, incarnation) == 12 && offsetof(RingHeader, generation) == 16 &&
              offsetof(RingHeader, owner) == 24 && offsetof(RingHeader, start_lsn) == 32 &&
              offsetof(RingHeader, expired_below_sequence) == 40 &&
              offsetof(RingHeader, data_bytes) == 48 &&
              offsetof(RingHeader, incarnation_lsn) == 56);

struct EntryHeader {
  uint32_t crc;  // of the rest of the header and the payload, seeded with the ring's salt
  uint16_t magic;
  uint8_t reserved;       // 0
  uint8_t padding_bytes;  // zeros after the payload; 0 in a pad entry
  uint64_t lsn;
  uint32_t payload_bytes;  // of a pad entry: how many bytes to skip after its header, to the end of
                           // the data area or less; they are not covered by the checksum
  uint32_t incarnation;    // of the writer; along a ring it never falls
  uint64_t sequence;       // the writer's own number of what is logged; 0 in a pad entry
};
static_assert(sizeof(EntryHeader) == 32 && offsetof(EntryHeader, magic) == 4 &&
              offsetof(EntryHeader, padding_bytes) == 7 && offsetof(EntryHeader, lsn) == 8 &&
              offsetof(EntryHeader, payload_bytes) == 16 &&
              offsetof(EntryHeader, incarnation) == 20 && offsetof(EntryHeader, sequence) == 24);

}  // namespace pmstore::log
