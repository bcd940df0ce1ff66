// What the log scenarios and their target say to each other. Plain structs: both sides are this
// binary.
#pragma once

#include <cstdint>
#include <span>

#include "base/checksum.h"
#include "fabric/memory_region.h"
#include "log/entry.h"
#include "persist/strategy.h"

namespace pmstore::scenario {

inline constexpr uint64_t kScenarioRingBytes = 64 * 1024;

struct RingHello {
  fabric::RemoteRegion replies;
  uint64_t owner = 0;
};

struct RingAnswer {
  fabric::RemoteRegion requests;
  fabric::RemoteRegion data;
  fabric::RemoteRegion tail;  // 8 bytes of ordinary memory
  log::RingPosition position;
  persist::PersistCapability capability;
};

enum RingMethod : uint16_t {
  kReadRing = 1,      // -> FoundEntry[]: what a walk by a newly opened ring finds
  kTruncateRing = 2,  // TruncateRing -> nothing
  kReadTail = 3,      // -> uint64: what the tail word holds
};

struct FoundEntry {
  uint64_t lsn = 0;
  uint64_t sequence = 0;
  uint64_t checksum = 0;  // of the payload
  bool operator==(const FoundEntry&) const = default;
};

struct TruncateRing {
  uint64_t tail_lsn;
  uint64_t start_lsn;
};

inline uint64_t payload_checksum(std::span<const std::byte> payload) {
  return base::checksum64(payload, payload.size());
}

}  // namespace pmstore::scenario
