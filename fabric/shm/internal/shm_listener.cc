#include "fabric/shm/internal/shm_listener.h"

#include <sys/epoll.h>

#include <algorithm>

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
  PMSTORE_TRY_STATUS(device.executor().watch(listener->socket_.fd(), EPOLLIN, *listener));
  listener->watched_ = true;
  return std::unique_ptr<Listener>(std::move(listener));
}

ShmListener::~ShmListener() {
  if (watched_) device_.executor().unwatch(socket_.fd());
}

uint64_t ShmListener::next_tick_ns(uint64_t now_ns) const {
  const uint64_t next_ns = HandshakeListener::next_tick_ns(now_ns);
  return retry_at_ns_ == 0 ? next_ns : std::min(next_ns, retry_at_ns_);
}

void ShmListener::retry_later() {
  retry_at_ns_ = device_.executor().now_ns() + kRetryNs;
  device_.executor().change_watch(socket_.fd(), 0, *this);
}

void ShmListener::accept_new() {
  if (retry_at_ns_ != 0 && device_.executor().now_ns() >= retry_at_ns_) {
    retry_at_ns_ = 0;
    clients_wait_ = true;
    device_.executor().change_watch(socket_.fd(), EPOLLIN, *this);
  }
  while (clients_wait_) {
    if (full()) return retry_later();
    Result<std::optional<ShmSocket>> client = socket_.accept();
    clients_wait_ = client && *client;
    if (!client) return retry_later();
    if (!*client) return;
    Result<std::unique_ptr<ShmConnection>> connection =
        ShmConnection::accept(shm_, std::move(**client), kAcceptedOptions);
    // Without a watch left it is closed; the others are served.
    if (connection) take(std::move(*connection));
  }
}

}  // namespace pmstore::fabric::shm
