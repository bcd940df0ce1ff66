// What libpmemobj writes at the start of a pool, as far as we check it before libpmemobj gets the
// pool.
//
// Why look at all: pmemobj_open() changes a pool even when it then refuses it, cannot tell a
// truncated pool from a damaged one, and on a truncated one may run into SIGBUS. The format is the
// one of PMDK 1.5 to 2.x ("OBJ_FORMAT_MAJOR 6": pool_hdr.h, obj.h, heap_layout.h there); it will
// not change any more. tests/unit/persist compares every field with a pool made by the library that
// is installed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "persist/pool.h"

namespace pmstore::persist::internal {

struct PmemobjFacts {
  uint64_t pool_bytes;   // that libpmemobj maps and uses
  uint64_t root_offset;  // of the root object
  uint64_t heap_offset;
};

// A large object takes whole chunks, with its header.
inline constexpr uint64_t kChunkBytes = 256 * 1024;
inline constexpr uint64_t kObjectHeaderBytes = 16;

inline constexpr char kPmemobjSignature[8] = {'P', 'M', 'E', 'M', 'O', 'B', 'J', 0};
// The signature, version and checksummed header of a pool.
inline constexpr uint64_t kPmemobjHeaderBytes = 4096;

// BadPool (not a pool, another program's, truncated, damaged header), VersionMismatch; `name`
// begins the message. `file` is the whole file or device.
Result<PmemobjFacts> check_pmemobj(std::span<const std::byte> file, std::string_view name);

enum class ChunkType : uint16_t {
  kBroken = 0,  // the rest of a zone, behind a header that makes no sense
  kFree = 2,
  kUsed = 3,  // one object
  kRun = 4,   // small objects of one size
};

// Chunks that belong together. `header` is the place of the 8 bytes that say so. A zone that is not
// set up has one free group, whose header is not written yet: that is done when it is first needed.
struct ChunkGroup {
  ChunkType type;
  uint64_t begin;  // in the pool
  uint64_t end;
  uint64_t header;
  uint64_t zone;  // the place of its zone's header
  bool zone_is_set_up;
};
// All of them in order. Requires that check_pmemobj() accepted the pool.
std::vector<ChunkGroup> chunk_groups(std::span<const std::byte> pool, const PmemobjFacts& facts);

// What the 8 bytes of a group's header say, and those of the header of a zone with `chunks`.
uint64_t chunk_header_of(ChunkType type, uint64_t chunks);
uint64_t zone_header_of(uint64_t chunks);

// The largest object that can still be allocated, from the chunk headers; 0 when there is
// none. Requires that check_pmemobj() accepted the pool. Damaged chunk headers end the walk.
uint64_t largest_free_object(std::span<const std::byte> pool, const PmemobjFacts& facts);

// Whether libpmemobj has nothing to finish or to take back: no redo log of a lane has a checksum,
// no undo log an entry, and none of them has a second part. Requires that check_pmemobj() accepted
// the pool.
bool lanes_are_idle(std::span<const std::byte> pool, const PmemobjFacts& facts);
// The places of the words that say otherwise. After libpmemobj has opened the pool they say nothing
// any more: it does not clear the checksum of a log that was torn. Same requirement.
std::vector<uint64_t> words_of_busy_lanes(std::span<const std::byte> pool,
                                          const PmemobjFacts& facts);

// The record of unsafe shutdowns of the device that a pool lies on: how many there were, which
// device, and whether the pool was open. libpmemobj refuses a pool that was open when its device
// lost what was in the queues. Count and device are 0 where nothing is counted, as for files.
inline constexpr uint64_t kShutdownStateOffset = 4024;
using ShutdownState = std::array<std::byte, 64>;
ShutdownState shutdown_state_in(std::span<const std::byte> pool);
bool counts_shutdowns(const ShutdownState& state);

struct ByteRange {
  uint64_t begin;
  uint64_t end;
};

// What libpmemobj may look at when it opens the pool and allocates: all but free chunks and the
// insides of `extents`. Where chunk headers do not follow each other (a crash in mid-change, or
// damage) that is the rest of their zone. Same requirement as above.
std::vector<ByteRange> metadata_ranges(std::span<const std::byte> pool, const PmemobjFacts& facts,
                                       const std::vector<Extent>& extents);

// BadPool unless the chunk headers are in order, the root object lies in allocated chunks, and each
// extent in those of one object. For a pool that libpmemobj has repaired.
Status check_allocated(std::span<const std::byte> pool, const PmemobjFacts& facts,
                       const std::vector<Extent>& extents, std::string_view name);

// In a copy of the header: makes libpmemobj not look at the record of unsafe shutdowns of the
// device that the pool lies on.
void clear_shutdown_state(std::span<std::byte> header);

// PMDK's 64-bit Fletcher sum with [skip_begin, skip_begin+8) and everything from `covered` on as
// zeroes.
uint64_t fletcher64(std::span<const std::byte> bytes, size_t skip_begin, size_t covered);

}  // namespace pmstore::persist::internal
