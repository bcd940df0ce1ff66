// EchoServer: the least that a server over TCP does: epoll_wait, recv, send. It shows what the
// kernel's sockets allow, whatever the server then does with a request.
#pragma once

#include <cstdint>

namespace pmstore::compare {

// Begins each request, whose length includes it.
struct EchoHeader {
  uint32_t request_bytes = 0;
  uint32_t reply_bytes = 0;
};
inline constexpr uint32_t kMaxEchoBytes = 65536;

// Serves at 127.0.0.1 and prints the address in one line, HOST:PORT. Does not return.
[[noreturn]] void serve_echo();

}  // namespace pmstore::compare
