// The messages of the verbs handshake. docs/fabric-verbs.md has their order.
//
// rdma_cm carries only 56 bytes: the Preamble. The hello and its answer follow by SEND on the new
// queue pair. Little endian. The receiver does not trust the sender yet.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fabric/device.h"

namespace pmstore::fabric::verbs {

inline constexpr uint32_t kPreambleMagic = 0x47534d50;  // "PMSG"
inline constexpr uint32_t kHelloMagic = 0x48534d50;     // "PMSH"
// Grows with every change of these structures and of the meaning of ErrorCode's numbers.
inline constexpr uint16_t kHandshakeVersion = 1;

// The reason of a refusal before there is a queue pair.
enum class Rejection : uint16_t {
  kNone = 0,
  kVersion = 1,      // handshake versions differ
  kBusy = 2,         // too many handshakes under way
  kNoResources = 3,  // no queue pair, or another RDMA device than the one in use
};

// The private data of rdma_connect, rdma_accept and rdma_reject. The receiver sees it padded.
struct Preamble {
  uint32_t magic;
  uint16_t version;
  uint16_t rejection;  // Rejection; 0 except in rdma_reject
};
static_assert(sizeof(Preamble) == 8);

// Before the bytes of a hello, of its answer, or of the message of a refusal.
struct HelloHeader {
  uint32_t magic;
  uint16_t version;
  uint16_t refusal;   // 0: accepted; otherwise 1 + ErrorCode
  uint32_t bytes;     // that follow
  uint32_t reserved;  // 0
};
static_assert(sizeof(HelloHeader) == 16);

inline constexpr size_t kMaxHelloMessageBytes = sizeof(HelloHeader) + kMaxHelloBytes;

}  // namespace pmstore::fabric::verbs
