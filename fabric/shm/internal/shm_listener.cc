#include "fabric/shm/internal/shm_listener.h"

#include "fabric/shm/internal/shm_device.h"

namespace pmstore::fabric::shm {

ShmListener::ShmListener(ShmDevice& device, const Uri& uri, Acceptor& acceptor, ShmSocket socket)
    : HandshakeListener(device, uri, acceptor), shm_(device), socket_(std::move(socket)) {}

Result<std::unique_ptr<Listener>> ShmListener::open(ShmDevice& device, const Uri& uri,
                                                    Acceptor& acceptor) {
  if (uri.scheme != Scheme::kShm) {
    return make_error(ErrorCode::kInvalidArgument, uri.to_string() + " is not a shm address");
  }
  PMSTORE_TRY(ShmSocket socket, ShmSocket::listen(uri.name));
  std::unique_ptr<ShmListener> listener(new ShmListener(device, uri, acceptor, std::move(socket)));
  PMSTORE_TRY_STATUS(listener->start(listener->socket_.fd()));
  return std::unique_ptr<Listener>(std::move(listener));
}

internal::HandshakeListener::Accepted ShmListener::accept_next() {
  if (handshakes() >= kMostHandshakes) return Accepted::kNotNow;
  Result<std::optional<ShmSocket>> client = socket_.accept();
  if (!client) return Accepted::kNotNow;
  if (!*client) return Accepted::kNobody;
  const internal::Origin origin{0, (*client)->peer_process()};
  Result<std::unique_ptr<ShmConnection>> connection =
      ShmConnection::accept(shm_, std::move(**client), kAcceptedOptions);
  // Without a watch left it is closed; the others are served.
  if (connection) take(std::move(*connection), origin);
  return Accepted::kClient;
}

}  // namespace pmstore::fabric::shm
