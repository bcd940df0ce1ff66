// TcpListener: a listening TCP socket. See fabric/device.h.
#pragma once

#include "fabric/internal/handshake_listener.h"
#include "fabric/tcp/internal/socket.h"

namespace pmstore::fabric::tcp {

class TcpDevice;

class TcpListener final : public internal::HandshakeListener {
 public:
  // Io when the address is in use or not ours.
  static Result<std::unique_ptr<Listener>> open(TcpDevice& device, const Uri& uri,
                                                Acceptor& acceptor);

 protected:
  void accept_new() override;

 private:
  TcpListener(TcpDevice& device, Uri uri, Acceptor& acceptor, Socket socket);

  TcpDevice& tcp_;
  Socket socket_;
};

}  // namespace pmstore::fabric::tcp
