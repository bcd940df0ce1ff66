// ShmListener: a listening Unix socket. See fabric/device.h.
#pragma once

#include "fabric/internal/handshake_listener.h"
#include "fabric/shm/internal/shm_socket.h"

namespace pmstore::fabric::shm {

class ShmDevice;

class ShmListener final : public internal::HandshakeListener {
 public:
  // Io when a live server has the name.
  static Result<std::unique_ptr<Listener>> open(ShmDevice& device, const Uri& uri,
                                                Acceptor& acceptor);
  ~ShmListener() override { stop(); }

 protected:
  Accepted accept_next() override;

 private:
  // More clients wait in the socket's backlog: all are of one user, who may end this server, too.
  static constexpr size_t kMostHandshakes = 256;

  ShmListener(ShmDevice& device, const Uri& uri, Acceptor& acceptor, ShmSocket socket);

  ShmDevice& shm_;
  ShmSocket socket_;
};

}  // namespace pmstore::fabric::shm
