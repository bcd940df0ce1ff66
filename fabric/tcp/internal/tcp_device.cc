#include "fabric/tcp/internal/tcp_device.h"

#include "fabric/internal/region_key.h"
#include "fabric/tcp/internal/tcp_listener.h"

namespace pmstore::fabric::tcp {

TcpRegion::TcpRegion(TcpDevice& device, std::span<std::byte> memory, Access access, uint64_t key)
    : MemoryRegion(memory, access), device_(device) {
  remote_ = RemoteRegion{internal::address_base(key), memory.size(), key};
}

TcpRegion::~TcpRegion() { device_.withdraw(*this); }

TcpDevice::TcpDevice(base::Executor& executor, std::shared_ptr<MultiplexerSet> multiplexers)
    : PolledDevice(executor, Scheme::kTcp), multiplexers_(std::move(multiplexers)) {}

Result<std::unique_ptr<Device>> TcpDevice::open(base::Executor& executor) {
  PMSTORE_TRY(std::shared_ptr<MultiplexerSet> multiplexers, MultiplexerSet::of(executor));
  return std::unique_ptr<Device>(new TcpDevice(executor, std::move(multiplexers)));
}

TcpDevice::~TcpDevice() { PMSTORE_CHECK(regions_.empty(), "regions use their device to the end"); }

Result<std::unique_ptr<MemoryRegion>> TcpDevice::register_memory(std::span<std::byte> memory,
                                                                 Access access) {
  if (memory.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "a region must have at least 1 byte");
  }
  uint64_t key = 0;
  do {
    PMSTORE_TRY(key, internal::random_key());
  } while (regions_.contains(key));
  auto region = std::make_unique<TcpRegion>(*this, memory, access, key);
  regions_.emplace(key, region.get());
  return std::unique_ptr<MemoryRegion>(std::move(region));
}

void TcpDevice::withdraw(const TcpRegion& region) {
  regions_.erase(region.remote().key);
  multiplexers_->withdraw(region);
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
