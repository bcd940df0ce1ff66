// The messages between an administrator's client and a server: RPC requests and replies. Hello and
// welcome (service/hello.h) have no body.
//
// An admin session has no redo ring and no rights to any memory. So it can be opened at a server
// whose rings are all taken, and it changes nothing in the pool. Messages are fixed little-endian
// structs. The server closes the connection of a sender whose message does not decode exactly.
#pragma once

#include <cstdint>

#include "service/hello.h"

namespace pmstore {

enum class AdminMethod : uint16_t {
  kStat = 0x0301,      // -> JSON text
  kSessions = 0x0302,  // AdminSessionsRequest -> JSON text: as many as fit, from there on
  kKick = 0x0303,      // AdminKickRequest -> AdminKickReply
};

struct AdminSessionsRequest {
  uint32_t from;  // 0 at first, then "next" of the reply
};
struct AdminKickRequest {
  ClientId client;
};
struct AdminKickReply {
  uint32_t kicked;  // sessions
};

inline constexpr uint32_t kAdminReplyBytes = 64 * 1024;

}  // namespace pmstore
