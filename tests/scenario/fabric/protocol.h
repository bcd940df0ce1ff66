// What the fabric scenarios and their target say to each other: hellos and control calls. Both are
// the same binary, so plain structs do.
#pragma once

#include <cstdint>

#include "fabric/memory_region.h"

namespace pmstore::scenario {

inline constexpr uint32_t kHelloMagic = 0x6d617473;
inline constexpr char kRefusal[] = "this target refuses you, as you asked";
inline constexpr uint64_t kSharedBytes = 4u << 20;
inline constexpr uint64_t kOtherBytes = 1u << 20;

enum class ConnectionKind : uint32_t { kControl, kRaw, kRefuseMe };

struct ClientHello {
  uint32_t magic = kHelloMagic;
  ConnectionKind kind = ConnectionKind::kRaw;
  fabric::RemoteRegion replies;  // of a control connection
};

struct TargetHello {
  uint64_t connection_id = 0;
  fabric::RemoteRegion requests;    // of a control connection
  fabric::RemoteRegion shared;      // READ, WRITE, ATOMIC
  fabric::RemoteRegion read_only;   // READ
  fabric::RemoteRegion write_only;  // WRITE
  fabric::RemoteRegion no_access;   // none
};

enum Method : uint16_t {
  kEcho,            // gives the request back
  kFail,            // FailRequest, then the message
  kHold,            // answered with the request when kReleaseHeld comes
  kReleaseHeld,     // answers what is held, the newest first
  kNeverAnswer,     // kept until the target ends
  kDropUnanswered,  // the handler destroys the call
  kFillShared,      // FillRequest: the target's CPU writes
  kChecksum,        // ChecksumRequest -> uint64
  kRawState,        // uint64 id -> RawState
  kDestroyRaw,      // uint64 id -> uint64 checksum of shared, taken after the destruction
  kSendToRaw,       // SendRequest: WRITE with immediate into the client's memory
  kDestroyMe,       // the handler destroys the peer that the call came from
  kLive,            // -> LiveReply
  kStartCpu,        // CpuTask: the target's CPU begins to do that beside the connections
  kStopCpu,         // -> CpuReport
};

struct FailRequest {
  uint32_t code;
};
struct FillRequest {
  uint64_t offset;
  uint64_t bytes;
  uint8_t value;
};
struct ChecksumRequest {
  uint32_t region;  // 0 shared, 1 read_only, 2 write_only, 3 no_access
  uint64_t offset;
  uint64_t bytes;
};
struct RawState {
  uint64_t immediates;
  uint32_t last_immediate;
  uint32_t disconnected;
};
struct SendRequest {
  uint64_t id;
  fabric::RemoteRegion to;
  uint32_t bytes;
  uint32_t immediate;
  uint8_t value;
};
struct LiveReply {
  uint64_t control;
  uint64_t raw;
  uint64_t lost;  // connections that ended without the target wanting it
};

// What the target's CPU does in shared memory, again and again, until it is told to stop. `area`
// and `word` are offsets.
enum class CpuWork : uint64_t {
  kRaise,       // writes a number into all words of the area, from front to back, then the next one
  kRaiseBytes,  // the same with words whose 8 bytes are the same
  kWatchOrder,  // looks that no word of the area is below the one at `word`
  kWatchWords,  // looks that the 8 bytes of each word of the area are the same
  kAdd,         // adds 1 to `word`, atomically
};
struct CpuTask {
  CpuWork work;
  uint64_t area;
  uint64_t area_bytes;
  uint64_t word;
};
struct CpuReport {
  uint64_t turns;
  uint64_t violations;
  uint64_t first_offset;  // of the first violation: the word,
  uint64_t first_found;   // what it was,
  uint64_t first_wanted;  // and the least that it should have been
};

}  // namespace pmstore::scenario
