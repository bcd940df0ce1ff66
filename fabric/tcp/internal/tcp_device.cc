#include "fabric/tcp/internal/tcp_device.h"

#include "fabric/tcp/internal/tcp_listener.h"

namespace pmstore::fabric::tcp {

TcpDevice::TcpDevice(base::Executor& executor, std::shared_ptr<MultiplexerSet> multiplexers)
    : FramedDevice(executor, Scheme::kTcp), multiplexers_(std::move(multiplexers)) {}

Result<std::unique_ptr<Device>> TcpDevice::open(base::Executor& executor) {
  return std::unique_ptr<Device>(new TcpDevice(executor, MultiplexerSet::of(executor)));
}

Result<std::unique_ptr<internal::PolledConnection>> TcpDevice::dial(
    const Uri& uri, const internal::ConnectionOptions& options) {
  const std::string where = uri.to_string();
  Multiplexer* multiplexer = multiplexers_->find(where);
  if (multiplexer == nullptr) {
    Result<std::vector<SocketAddress>> addresses = resolve(uri.name, uri.port, false);
    if (!addresses) return make_error(ErrorCode::kDisconnected, addresses.error().message);
    PMSTORE_TRY(multiplexer, multiplexers_->dial(std::move(*addresses), where));
  }
  return std::make_unique<TcpConnection>(*this, *multiplexer, options);
}

Result<std::unique_ptr<Listener>> TcpDevice::listen(const Uri& uri, Acceptor& acceptor) {
  return TcpListener::open(*this, uri, acceptor);
}

}  // namespace pmstore::fabric::tcp
