// The persistent layout of a ring: one header of 256 B, then the data area. docs/log.md describes it.
//
// An entry is header, payload, zero padding to the padding unit. LSNs are byte positions that only
// grow; entry `lsn` lies at data offset lsn % data_bytes, and never crosses the end of the data area: a pad
// entry (kPadMagic) fills what is left. All integers little endian.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pmstore::log {

inline constexpr uint32_t kRingMagic = 0x474e5250;   // "PRNG"
inline constexpr uint32_t kEntryMagic = 0x594e4550;  // "PENY"
inline constexpr uint32_t kPadMagic = 0x44415050;    // "PPAD"
inline constexpr uint32_t kRingFormatVersion = 1;
inline constexpr uint64_t kRingHeaderBytes = 256;
inline constexpr uint64_t kEntryAlignment = 64;
inline constexpr uint64_t kMinRingBytes = 16 * 1024;

// Two copies, written in turn, so that a torn header leaves the one before. The valid one with the higher
// `generation` counts.
struct RingHeader {
  uint32_t magic;
  uint32_t crc;         // of everything after this field, seeded with the ring's salt
  uint32_t version;
  uint32_t incarnation; // raised each time a writer takes the ring over
  uint64_t generation;  // raised by each header write
  uint64_t owner;       // whose entries these are; 0: nobody's
  uint64_t start_lsn;   // truncated-through mark: entries below are not replayed and may be overwritten
  uint64_t expired_below_sequence;  // entries with a sequence below may have been truncated
  uint64_t data_bytes;
  uint64_t reserved;
};
static_assert(sizeof(RingHeader) == 64 && offsetof(RingHeader, generation) == 16 &&
              offsetof(RingHeader, start_lsn) == 32);

struct EntryHeader {
  uint32_t magic;
  uint32_t crc;  // of everything after this field, payload included, seeded with the ring's salt
  uint64_t lsn;
  uint32_t payload_bytes;  // of a pad entry: bytes after its header to the end of the data area
  uint32_t incarnation;    // of the writer; along a ring it never falls
  uint64_t sequence;       // the writer's own number of what is logged (a transaction's)
};
static_assert(sizeof(EntryHeader) == 32 && offsetof(EntryHeader, lsn) == 8 &&
              offsetof(EntryHeader, sequence) == 24);

}  // namespace pmstore::log
