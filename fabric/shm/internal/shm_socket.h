// ShmSocket: the Unix socket beside each shm connection: servers have names, one server per name,
// and a connection learns that its peer has died.
//
// A SOCK_SEQPACKET socket in the abstract namespace: the kernel frees the name and tells the peer
// when the process ends, however it ends. It carries the handshake and, with the hello, the
// descriptors of the segment. Never blocks. One thread.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "base/result.h"

namespace pmstore::fabric::shm {

class ShmSocket {
 public:
  ShmSocket() = default;
  explicit ShmSocket(int fd) : fd_(fd) {}

  // Io when a server of that name runs; InvalidArgument when the name is too long.
  static Result<ShmSocket> listen(const std::string& name);
  // InvalidArgument as above.
  static Result<ShmSocket> create(const std::string& name);

  // True once connected, false: ask again. Disconnected when nobody listens, Access when the server
  // belongs to another user.
  Result<bool> connect(const std::string& name);
  // The next client; nothing when there is none. Clients of other users are turned away. Io while
  // there is no descriptor or memory for it.
  Result<std::optional<ShmSocket>> accept();

  // Sends copies of at most kMaxDescriptors `descriptors` with it.
  Status send(std::span<const std::byte> message, std::span<const int> descriptors = {});
  // The process at the other end, as this one names it; 0 if it has no name here.
  uint64_t peer_process() const;
  enum class Received { kMessage, kNothing, kClosed };
  // Fills `message` with the next one, and `descriptors` with those that came with it.
  Received receive(std::vector<std::byte>& message, std::vector<base::FileDescriptor>& descriptors);

  int fd() const { return fd_.get(); }
  void close() { fd_.reset(); }

 private:
  static constexpr size_t kMaxDescriptors = 3;
  bool is_of_this_user() const;
  base::FileDescriptor fd_;
};

}  // namespace pmstore::fabric::shm
