// Socket: a TCP socket that never blocks. resolve(): the addresses of a host name. Set-up only, not
// the data path. One thread.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "base/result.h"
#include "fabric/internal/newcomers.h"

namespace pmstore::fabric::tcp {

struct SocketAddress {
  sockaddr_storage storage;
  socklen_t bytes;
};

// The addresses of `host`, IPv4 first. InvalidArgument when there is none. May wait for a name
// server as long as resolv.conf(5) says.
Result<std::vector<SocketAddress>> resolve(const std::string& host, uint16_t port, bool to_listen);

// The origin of a client at `address`. IPv4 clients of an IPv6 socket count as IPv4 clients.
internal::Origin origin_of(const SocketAddress& address);

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}

  // Io when the address is in use or not ours.
  static Result<Socket> listen(const SocketAddress& address);
  // Begins to connect. Io when there is no descriptor left, Disconnected when there is no way.
  static Result<Socket> connect(const SocketAddress& address);

  // The next client; nothing when there is none. Io while there is no descriptor or memory for it.
  struct Client;
  Result<std::optional<Client>> accept();
  // Whether a client waits. Needs no descriptor.
  bool has_client() const;
  // True once connected; false while connecting. Disconnected when that failed; the message is only
  // the reason.
  Result<bool> connected() const;
  // The port of a listening socket, also if the kernel chose it.
  Result<uint16_t> port() const;

  int fd() const { return fd_.get(); }
  bool open() const { return bool(fd_); }
  void close() { fd_.reset(); }

 private:
  base::FileDescriptor fd_;
};

struct Socket::Client {
  Socket socket;
  internal::Origin origin;
};

}  // namespace pmstore::fabric::tcp
