// What travels on a tcp connection: handshake messages (fabric/internal/handshake.h) and frames,
// one after the other, little endian. A handshake message begins with its magic, which is no
// frame's first word.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fabric/internal/handshake.h"

namespace pmstore::fabric::tcp {

enum class FrameKind : uint8_t {
  kWrite = 1,           // `bytes` of data follow, for `address` in the region of `key`
  kWriteImmediate = 2,  // the same; then `immediate` is delivered
  kRead = 3,            // asks for `bytes` from there
  kReadData = 4,        // the answer: `bytes` of data follow
  kDone = 5,            // the next `bytes` requests that asked for it are done (nothing follows)
  kRefused = 6,         // a request was not granted; the sender closes the connection behind it
};

inline constexpr uint8_t kAnswerWhenDone = 1;  // a flag of kWrite and kWriteImmediate

struct FrameHeader {
  FrameKind kind;
  uint8_t flags;
  uint16_t zero;
  uint32_t bytes;
  uint64_t address;
  uint64_t key;
  uint32_t immediate;
  uint32_t zero_too;
};
static_assert(sizeof(FrameHeader) == 32 && offsetof(FrameHeader, address) == 8);
static_assert((internal::kHandshakeMagic & 0xff) > static_cast<uint8_t>(FrameKind::kRefused));

// Requests of one end that are to be answered (READs, and batches that end with a WRITE and have a
// Completion): so many may be under way, and so many answers the other end has room for.
inline constexpr uint32_t kMaxUnanswered = 1024;

}  // namespace pmstore::fabric::tcp
