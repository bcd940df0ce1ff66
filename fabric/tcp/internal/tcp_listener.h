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

  uint64_t next_tick_ns(uint64_t now_ns) const override;

  // ---- for multiplexers ----
  std::unique_ptr<TcpConnection> accept(Multiplexer& multiplexer, uint32_t channel);
  // May end the handshake of another connection.
  void adopt(std::unique_ptr<TcpConnection> connection, const internal::Origin& origin) {
    take(std::move(connection), origin);
  }

 protected:
  Accepted accept_next() override;
  void after_accepting() override;

 private:
  TcpListener(TcpDevice& device, Uri uri, Acceptor& acceptor, Socket socket);

  TcpDevice& tcp_;
  Socket socket_;
};

}  // namespace pmstore::fabric::tcp
