// TcpListener: a listening TCP socket. See fabric/device.h.
#pragma once

#include "fabric/internal/handshake_listener.h"
#include "fabric/tcp/internal/socket.h"
#include "fabric/tcp/internal/tcp_connection.h"

namespace pmstore::fabric::tcp {

class TcpDevice;

class TcpListener final : public internal::HandshakeListener {
 public:
  // Io when the address is in use or not ours.
  static Result<std::unique_ptr<Listener>> open(TcpDevice& device, const Uri& uri,
                                                Acceptor& acceptor);
  ~TcpListener() override;

  // ---- for multiplexers ----
  // A new connection; null when there are too many handshakes under way.
  std::unique_ptr<TcpConnection> accept(Multiplexer& multiplexer, uint32_t channel);
  void adopt(std::unique_ptr<TcpConnection> connection) { take(std::move(connection)); }

 protected:
  void accept_new() override;

 private:
  TcpListener(TcpDevice& device, Uri uri, Acceptor& acceptor, Socket socket);

  TcpDevice& tcp_;
  Socket socket_;
};

}  // namespace pmstore::fabric::tcp
