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
  // A new connection; null when there are too many handshakes under way.
  std::unique_ptr<TcpConnection> accept(Multiplexer& multiplexer, uint32_t channel);
  void adopt(std::unique_ptr<TcpConnection> connection) { take(std::move(connection)); }

 protected:
  Accepted accept_next() override;
  void after_accepting() override;

 private:
  TcpListener(TcpDevice& device, Uri uri, Acceptor& acceptor, Socket socket);

  // Sockets without a connection are looked at so often.
  static constexpr uint64_t kIdleLookNs = 1'000'000'000;

  TcpDevice& tcp_;
  Socket socket_;
};

}  // namespace pmstore::fabric::tcp
