// SocketLoad: the same operations as a usual client of a server over TCP does them: with one
// connection a blocking send and a blocking recv, with several one epoll_wait for all of them.
#pragma once

#include "tests/compare/load.h"

namespace pmstore::compare {

// One thread's share, against Redis (SET, GET, XADD) or the echo server.
void run_socket_load(const LoadOptions& options, uint32_t thread, StartGate& gate, Tally& tally);

// Bytes that the program's TCP sockets have sent and received since they were opened.
struct SocketBytes {
  uint64_t sent = 0;
  uint64_t received = 0;

  SocketBytes operator-(const SocketBytes& earlier) const {
    return {sent - earlier.sent, received - earlier.received};
  }
};
SocketBytes tcp_bytes();

}  // namespace pmstore::compare
