// The bytes of a segment: the memory that both ends of a shm connection map. Little endian.
//
//   0                      RingState[2]
//   4096                   the bytes of ring 0: from the end that dialed to the listener's
//   4096 + kRingBytes      the bytes of ring 1: back
//
// Each field is written by one end, which the other need not believe: whoever reads it checks it.
// docs/fabric-shm.md has the protocol.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/sleep_flag.h"

namespace pmstore::fabric::shm {

// A whole number of pages, and a power of two.
inline constexpr uint32_t kRingBytes = 256 * 1024;
inline constexpr size_t kStateBytes = 4096;
inline constexpr size_t kSegmentBytes = kStateBytes + 2 * size_t{kRingBytes};

// In the hello of the end that dialed: the version of the layout and the bytes of a ring.
inline constexpr const char* kSegmentName = "pmstore-rings-1-262144";

enum class RingEnd : uint32_t {
  kOpen = 0,
  kClosed = 1,   // the writer has closed its end of the connection
  kRefused = 2,  // the same, because a request was not granted
};

// What is written by different ends lies on different pairs of cache lines (x86-64 prefetches the
// other line of a pair).
struct RingState {
  alignas(128) std::atomic<uint64_t> tail;     // bytes written since the beginning; by the writer
  std::atomic<uint32_t> end;                   // a RingEnd; by the writer, after its last tail
  alignas(128) std::atomic<uint64_t> head;     // bytes read since the beginning; by the reader
  alignas(128) base::SleepFlag reader_sleeps;  // until there are bytes or an end
  alignas(128) base::SleepFlag writer_sleeps;  // until there is room
};
static_assert(sizeof(RingState) == 512 && offsetof(RingState, end) == 8);
static_assert(offsetof(RingState, head) == 128 && offsetof(RingState, reader_sleeps) == 256);
static_assert(offsetof(RingState, writer_sleeps) == 384);
static_assert(2 * sizeof(RingState) <= kStateBytes);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

}  // namespace pmstore::fabric::shm
