// The request that makes ranges durable which were written before: a client asks a server's CPU to
// flush and drain them. docs/persist.md explains it. Little endian, no padding:
//
//   PersistRangesHeader | RemoteRange[ranges]
//
// A reply without payload says that what the ranges held when the request came is durable.
// Threads: functions of values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"

namespace pmstore::persist {

// The last byte is the version of this layout.
inline constexpr uint32_t kPersistRangesMagic = 0x52534d01;  // "MSR", 1
inline constexpr size_t kMaxPersistRanges = 256;
// Of one request, all ranges together: a server's CPU flushes so much in one turn.
inline constexpr uint64_t kMaxPersistBytes = uint64_t{1} << 20;

// Bytes of the region that a client was granted.
struct RemoteRange {
  uint64_t offset = 0;
  uint64_t bytes = 0;  // at least 1
  bool operator==(const RemoteRange&) const = default;
};
static_assert(sizeof(RemoteRange) == 16);

struct PersistRangesHeader {
  uint32_t magic = kPersistRangesMagic;
  uint32_t ranges = 0;  // 1 to kMaxPersistRanges
};
static_assert(sizeof(PersistRangesHeader) == 8);

struct PersistRanges {
  std::span<const RemoteRange> ranges() const { return {table.data(), count}; }
  std::array<RemoteRange, kMaxPersistRanges> table;
  size_t count = 0;
};

// Fills `out` from a request, whose bytes may change meanwhile. Protocol: it is malformed, or has
// more than kMaxPersistBytes; Access: a range is outside of the first `granted_bytes`.
Status decode_persist_ranges(std::span<const std::byte> request, uint64_t granted_bytes,
                             PersistRanges& out);

}  // namespace pmstore::persist
