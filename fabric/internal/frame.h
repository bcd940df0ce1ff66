// The frames of tcp and shm, one after the other on a socket or in a ring, little endian. The
// fields of a kHandshake frame's header keep their offsets in every later version.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pmstore::fabric::internal {

enum class FrameKind : uint8_t {
  kWrite = 1,           // `bytes` of data follow, for `address` in the region of `key`
  kWriteImmediate = 2,  // the same; then `immediate` is delivered
  kRead = 3,            // asks for `bytes` from there
  kReadData = 4,        // the answer, or the next piece of it: `bytes` of data follow
  kDone = 5,            // the next `bytes` requests that asked for it are done (nothing follows)
  kRefused = 6,         // a request was not granted; the sender has closed its end
  kClosed = 7,          // the sender has closed its end of the connection
  kHandshake = 8,  // a handshake message of `bytes` follows; the first one opens the connection
};

inline constexpr uint8_t kAnswerWhenDone = 1;  // a flag of kWrite and kWriteImmediate

struct FrameHeader {
  FrameKind kind;
  uint8_t flags;
  uint16_t zero;
  uint32_t bytes;
  // tcp: which connection of the multiplexer, counted from 1 by the end that dialed
  uint32_t channel;
  uint32_t immediate;
  uint64_t address;
  uint64_t key;
};
static_assert(sizeof(FrameHeader) == 32 && offsetof(FrameHeader, channel) == 8);

// Requests of one end of a connection that are to be answered (READs, and batches that end with a
// WRITE and have a Completion): so many may be under way, and so many answers the other end has
// room for.
inline constexpr uint32_t kMaxUnanswered = 1024;

constexpr bool carries_body(FrameKind kind) {
  return kind == FrameKind::kWrite || kind == FrameKind::kWriteImmediate ||
         kind == FrameKind::kReadData || kind == FrameKind::kHandshake;
}

// A body up to this size is written to its target in one step once all of it has arrived, so that
// nobody sees half of a small word. A larger body is written as it arrives.
inline constexpr uint32_t kWholeBodyBytes = 512;

}  // namespace pmstore::fabric::internal
