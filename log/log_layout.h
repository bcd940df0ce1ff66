// The persistent layout of a pool's log area and of its rooms: extents of kind kLog.
// docs/log-service.md describes it with an example.
//
//   area = LogAreaHeader copies at 0 and 256 | slots at kLogSlotsOffset | regions
//   room = zeros{kRoomReservedBytes} | regions
//   slot = two LogSlot copies of kLogSlotBytes
//   region = a ring (log/ring_layout.h) of LogSlot::region_bytes
// Header and slots are written to their copies in turn; the valid one with the higher generation
// counts. A slot both of whose copies are zero was never used. What no live slot covers is free:
// a region is formatted before its slot is written, and reused only after the slot that said
// otherwise is durable. A pool has one area, which has the slots of all logs, and any number
// of rooms. A room is taken before a slot names it, and given back after the slots of all its logs
// say durably that they are free. Where an area has its header, a room has zeros that no client may
// write: so no entry is ever taken for a header. Integers are little endian.
#pragma once

#include <cstddef>
#include <cstdint>

#include "log/log_types.h"

namespace pmstore::log {

inline constexpr uint32_t kLogAreaMagic = 0x41474c50;  // "PLGA"
inline constexpr uint32_t kLogSlotMagic = 0x53474c50;  // "PLGS"
inline constexpr uint32_t kLogFormatVersion = 2;       // of an area without rooms
inline constexpr uint32_t kLogVersionWithRooms = 3;
inline constexpr uint32_t kOldestLogFormatVersion = 1;  // its logs have no identity
inline constexpr uint64_t kLogAreaCopyStride = 256;
inline constexpr uint64_t kLogSlotsOffset = 4096;
inline constexpr uint64_t kRoomReservedBytes = 512;  // the copies of an area's header
inline constexpr uint64_t kLogSlotBytes = 768;       // one copy; a slot is two
inline constexpr size_t kMaxReplicaUriBytes = 112;

struct LogAreaHeader {
  uint32_t magic;
  uint32_t crc;  // CRC32C of everything after this field
  uint32_t version;
  uint32_t slots;
  uint64_t generation;
  uint64_t area;            // identity of the area, random; seeds the checksums of its slots
  uint64_t regions_offset;  // in the extent, a multiple of 256
  uint64_t area_bytes;      // of the extent
};
static_assert(sizeof(LogAreaHeader) == 48 && offsetof(LogAreaHeader, generation) == 16);

enum class LogState : uint8_t { kFree = 0, kLive = 1 };

// Entries of a log carry in front of their payload: everything below this LSN was durable, on every
// replica, when the entry was appended. So an invalid entry below what a later one says was
// damaged, not torn. docs/log-service.md.
struct LogEntryPrefix {
  uint64_t durable_lsn;
};
static_assert(sizeof(LogEntryPrefix) == 8);

struct LogSlot {
  uint32_t magic;
  uint32_t crc;  // CRC32C of everything after this field, seeded with the area's identity; of a
                 // log without an identity, of everything up to that; of a log in the area's own
                 // extent, of everything up to `extent`
  uint64_t generation;
  uint64_t id;             // of the log; also where its ring's salt comes from
  uint64_t region_offset;  // in `extent`, a multiple of 256
  uint64_t region_bytes;
  uint64_t sealed_lsn;  // the tail when it was sealed; of a replicated log that is not sealed:
                        // everything below was acknowledged, so every replica has it
  uint64_t membership;  // epoch; raised by each recorded decision about the replicas
  LogState state;
  FullPolicy when_full;
  uint8_t sealed;
  uint8_t name_bytes;
  uint8_t replicas;  // how many of replica_uri count; 0: not replicated
  uint8_t self;      // which of them this pool is
  uint16_t agreed;   // agreed_mark(membership): every member has recorded that one; else not known
  char name[kMaxLogNameBytes];
  char replica_uri[kMaxReplicas][kMaxReplicaUriBytes];  // zero-terminated when shorter
  uint64_t identity;  // what its creator drew, the same on every replica; 0: made in version 1
  uint64_t extent;    // that the region lies in: room_name(); 0: the area's own
};
static_assert(sizeof(LogSlot) == 64 + 120 + 4 * 112 + 16 && sizeof(LogSlot) <= kLogSlotBytes);
// What slots call a room: its entry in the pool's extent table, and the generation of that entry.
// No other extent of the pool ever has this name.
constexpr uint64_t room_name(uint32_t entry, uint32_t generation) {
  return (uint64_t{entry} + 1) << 32 | generation;
}
// An extent that logs have.
struct LogExtent {
  uint64_t name = 0;    // as LogSlot::extent
  uint64_t offset = 0;  // in the pool's memory
  uint64_t bytes = 0;
};
// It says of which membership it is, so that no other one inherits it. Number 1 needs no mark:
// there is none before it that a member could still be of.
constexpr uint16_t agreed_mark(uint64_t membership) {
  return static_cast<uint16_t>(1 + membership % 65535);
}
static_assert(offsetof(LogSlot, state) == 56 && offsetof(LogSlot, agreed) == 62 &&
              offsetof(LogSlot, name) == 64 && offsetof(LogSlot, replica_uri) == 184 &&
              offsetof(LogSlot, identity) == 632 && offsetof(LogSlot, extent) == 640);

}  // namespace pmstore::log
