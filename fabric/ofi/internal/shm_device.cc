#include "fabric/ofi/internal/shm_device.h"

namespace pmstore::fabric::ofi {

ShmDevice::ShmDevice(base::Executor& executor, std::unique_ptr<Provider> provider)
    : OfiDevice(executor, Scheme::kShm, std::move(provider)), lock_breaker_(calls_) {}

Result<std::unique_ptr<Device>> ShmDevice::open(base::Executor& executor) {
  PMSTORE_TRY(std::unique_ptr<Provider> provider, Provider::open());
  remove_stale_segments();
  return std::unique_ptr<Device>(new ShmDevice(executor, std::move(provider)));
}

Result<std::unique_ptr<internal::PolledConnection>> ShmDevice::dial(
    const Uri& uri, const ConnectionOptions& options) {
  PMSTORE_TRY(std::unique_ptr<ShmConnection> connection,
              ShmConnection::dial(*this, uri.name, options));
  return std::unique_ptr<internal::PolledConnection>(std::move(connection));
}

Result<std::unique_ptr<Listener>> ShmDevice::listen(const Uri& uri, Acceptor& acceptor) {
  return ShmListener::open(*this, uri, acceptor);
}

Result<std::unique_ptr<Listener>> ShmListener::open(ShmDevice& device, const Uri& uri,
                                                    Acceptor& acceptor) {
  if (uri.scheme != Scheme::kShm) {
    return make_error(ErrorCode::kInvalidArgument, uri.to_string() + " is not a shm address");
  }
  PMSTORE_TRY(ShmSocket socket, ShmSocket::listen(uri.name));
  return std::unique_ptr<Listener>(new ShmListener(device, uri, acceptor, std::move(socket)));
}

ShmListener::ShmListener(ShmDevice& device, const Uri& uri, Acceptor& acceptor, ShmSocket socket)
    : HandshakeListener(device, uri, acceptor), shm_(device), socket_(std::move(socket)) {}

void ShmListener::accept_new() {
  while (!full()) {
    std::optional<ShmSocket> client = socket_.accept();
    if (!client) return;
    Result<std::unique_ptr<ShmConnection>> connection =
        ShmConnection::accept(shm_, std::move(*client), kAcceptedOptions);
    // Out of room: this client has been told why, the others are served.
    if (connection) take(std::move(*connection));
  }
}

}  // namespace pmstore::fabric::ofi
