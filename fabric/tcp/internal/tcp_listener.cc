#include "fabric/tcp/internal/tcp_listener.h"

#include <sys/epoll.h>

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
  Status watched = device.executor().watch(listener->socket_.fd(), EPOLLIN, *listener);
  if (!watched) return failed(watched.error());
  listener->watched_ = true;
  return std::unique_ptr<Listener>(std::move(listener));
}

TcpListener::~TcpListener() {
  if (watched_) device_.executor().unwatch(socket_.fd());
  tcp_.multiplexers().forget_listener(*this);
}

uint64_t TcpListener::next_tick_ns(uint64_t now_ns) const {
  uint64_t next_ns = HandshakeListener::next_tick_ns(now_ns);
  if (tcp_.multiplexers().impatient()) next_ns = std::min(next_ns, now_ns + kIdleLookNs);
  if (retry_at_ns_ != 0) next_ns = std::min(next_ns, retry_at_ns_);
  return next_ns;
}

void TcpListener::accept_new() {
  const uint64_t now_ns = tcp_.executor().now_ns();
  if (retry_at_ns_ != 0 && now_ns >= retry_at_ns_) {
    retry_at_ns_ = 0;
    clients_wait_ = true;
    tcp_.executor().change_watch(socket_.fd(), EPOLLIN, *this);
  }
  if (clients_wait_) {
    clients_wait_ = false;
    Result<std::optional<Socket>> client = socket_.accept();
    for (; client && *client; client = socket_.accept()) {
      tcp_.multiplexers().adopt(std::move(**client), *this);
    }
    if (!client) {
      // The socket stays readable: watched, it would keep the executor from blocking.
      tcp_.executor().change_watch(socket_.fd(), 0, *this);
      retry_at_ns_ = now_ns + kRetryNs;
    }
  }
  tcp_.multiplexers().close_idle(tcp_.executor().now_ns());  // not before they were accepted
}

std::unique_ptr<TcpConnection> TcpListener::accept(Multiplexer& multiplexer, uint32_t channel) {
  if (full()) return nullptr;
  return std::make_unique<TcpConnection>(tcp_, multiplexer, channel, kAcceptedOptions);
}

}  // namespace pmstore::fabric::tcp
