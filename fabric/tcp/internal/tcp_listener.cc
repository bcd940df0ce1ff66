#include "fabric/tcp/internal/tcp_listener.h"

#include <algorithm>

#include "fabric/tcp/internal/tcp_device.h"

namespace pmstore::fabric::tcp {

TcpListener::TcpListener(TcpDevice& device, Uri uri, Acceptor& acceptor, Socket socket)
    : HandshakeListener(device, std::move(uri), acceptor),
      tcp_(device),
      socket_(std::move(socket)) {}

Result<std::unique_ptr<Listener>> TcpListener::open(TcpDevice& device, const Uri& uri,
                                                    Acceptor& acceptor) {
  if (uri.scheme != Scheme::kTcp) {
    return make_error(ErrorCode::kInvalidArgument, uri.to_string() + " is not a tcp address");
  }
  const auto failed = [&](const Error& why) {
    return make_error(ErrorCode::kIo, "cannot listen at " + uri.to_string() + ": " + why.message +
                                          "; choose a free port and an address of this host");
  };
  Result<std::vector<SocketAddress>> addresses = resolve(uri.name, uri.port, true);
  if (!addresses) return std::move(addresses.error());  // it names the address
  if (addresses->empty()) return failed(make_error(ErrorCode::kIo, "it has no IP address"));
  Result<Socket> socket = Socket::listen(addresses->front());
  if (!socket) return failed(socket.error());
  Uri actual = uri;
  Result<uint16_t> port = socket->port();
  if (!port) return failed(port.error());
  actual.port = *port;
  auto listener = std::unique_ptr<TcpListener>(
      new TcpListener(device, std::move(actual), acceptor, std::move(*socket)));
  device.multiplexers().fit_descriptors();
  Status started = listener->start(listener->socket_.fd());
  if (!started) return failed(started.error());
  return std::unique_ptr<Listener>(std::move(listener));
}

TcpListener::~TcpListener() {
  stop();
  tcp_.multiplexers().forget_listener(*this);
}

uint64_t TcpListener::next_tick_ns(uint64_t now_ns) const {
  return std::min(HandshakeListener::next_tick_ns(now_ns),
                  tcp_.multiplexers().next_close_ns(now_ns));
}

internal::HandshakeListener::Accepted TcpListener::accept_next() {
  MultiplexerSet& multiplexers = tcp_.multiplexers();
  Result<std::optional<Socket::Client>> client = socket_.accept();
  if (!client) {
    // Without a descriptor, a socket that says nothing gives its own, if anybody waits for it.
    if (!socket_.has_client()) return Accepted::kNobody;
    if (multiplexers.close_one_silent(tcp_.executor().now_ns())) client = socket_.accept();
  }
  if (!client) return Accepted::kNotNow;
  if (!*client) return Accepted::kNobody;
  multiplexers.adopt(std::move(**client), *this);
  return Accepted::kClient;
}

void TcpListener::after_accepting() {
  // Now, which is not before they were accepted.
  tcp_.multiplexers().close_silent(tcp_.executor().now_ns());
}

std::unique_ptr<TcpConnection> TcpListener::accept(Multiplexer& multiplexer, uint32_t channel) {
  return std::make_unique<TcpConnection>(tcp_, multiplexer, channel, kAcceptedOptions);
}

}  // namespace pmstore::fabric::tcp
