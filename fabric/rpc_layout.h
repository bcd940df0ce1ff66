// The bytes of RPC messages. docs/rpc.md explains them; both ends are little endian.
//
// Each field comes from the peer; the receiver checks it before use.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace pmstore::fabric {

// Messages start at multiples of this in the request ring and in the reply arena: one cache line.
inline constexpr uint32_t kRpcUnit = 64;
inline constexpr uint32_t kMinRpcRingBytes = 4096;
inline constexpr uint32_t kMaxRpcRingBytes = 1u << 30;
inline constexpr uint32_t kMaxRpcCalls = 1u << 16;  // the slot has 16 bits
constexpr bool usable_ring(uint64_t bytes) {
  return bytes % kRpcUnit == 0 && bytes >= kMinRpcRingBytes && bytes <= kMaxRpcRingBytes;
}

// The last byte is the version of this layout.
inline constexpr uint32_t kRpcRequestMagic = 0x51524d01;  // "MRQ", 1
inline constexpr uint32_t kRpcReplyMagic = 0x50524d01;    // "MRP", 1

struct RpcRequestHeader {
  uint32_t magic;
  uint32_t total_bytes;  // of this header and the payload behind it
  uint16_t method;
  uint16_t slot;  // the call's, chosen by the client; not one of a request in progress
  uint16_t generation;
  uint16_t reserved;        // 0
  uint32_t reply_offset;    // in the reply arena; a multiple of kRpcUnit
  uint32_t reply_capacity;  // payload bytes of a good reply; an error may use kRpcErrorRoom
  uint64_t reserved2;       // 0
};
static_assert(sizeof(RpcRequestHeader) == 32);
static_assert(offsetof(RpcRequestHeader, reply_offset) == 16);

struct RpcReplyHeader {
  uint32_t magic;
  uint32_t total_bytes;  // of this header and the payload behind it
  uint16_t slot;
  uint16_t generation;
  uint16_t status;  // 0: good; else 1 + ErrorCode, and the payload is the error's message
  uint16_t notice;  // of RpcPeer::set_notice(), when the reply was built
};
static_assert(sizeof(RpcReplyHeader) == 16);

// Payload room that every reply has, however little the caller asked for, so that errors can
// explain themselves. Longer messages are truncated.
inline constexpr uint32_t kRpcErrorRoom = 240;
inline constexpr uint32_t kRpcMaxStatus = 1 + static_cast<uint32_t>(base::kLastErrorCode);

// The room, header included, that the request reserves in the reply arena.
constexpr uint64_t rpc_reply_room(uint32_t reply_capacity) {
  const uint32_t payload = reply_capacity > kRpcErrorRoom ? reply_capacity : kRpcErrorRoom;
  return sizeof(RpcReplyHeader) + uint64_t{payload};
}

// The immediate of a request is its offset in the ring / kRpcUnit; that of a reply is this.
constexpr uint32_t rpc_reply_immediate(uint16_t slot, uint16_t generation) {
  return static_cast<uint32_t>(slot) | (static_cast<uint32_t>(generation) << 16);
}

}  // namespace pmstore::fabric
