// ShmSocket: the Unix socket beside each shm connection. It adds what libfabric's shm provider
// lacks: servers have names, one server per name, and a connection learns that its peer has died.
//
// A SOCK_SEQPACKET socket in the abstract namespace: the kernel frees the name and tells the peer
// when the process ends, however it ends. It carries handshakes only. Never blocks. One thread.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "base/result.h"

namespace pmstore::fabric::ofi {

class ShmSocket {
 public:
  ShmSocket() = default;
  explicit ShmSocket(int fd) : fd_(fd) {}

  // Io when a server of that name runs; InvalidArgument when the name is too long.
  static Result<ShmSocket> listen(const std::string& name);
  // InvalidArgument as above.
  static Result<ShmSocket> create(const std::string& name);

  // True once connected, false: ask again. Disconnected when nobody listens, Access when the server
  // belongs to another user, Unsupported when it is in this process.
  Result<bool> connect(const std::string& name);
  // The next client; nothing when there is none. Clients of other users are turned away.
  std::optional<ShmSocket> accept();

  Status send(std::span<const std::byte> message);
  enum class Received { kMessage, kNothing, kClosed };
  // Fills `message` with the next one.
  Received receive(std::vector<std::byte>& message);

  int fd() const { return fd_.get(); }
  void close() { fd_.reset(); }

 private:
  enum class Peer { kOk, kThisProcess, kOtherUser };
  Peer identify() const;
  base::FileDescriptor fd_;
};

}  // namespace pmstore::fabric::ofi
