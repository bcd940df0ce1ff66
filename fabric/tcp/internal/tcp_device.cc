#include "fabric/tcp/internal/tcp_device.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "fabric/internal/region_key.h"
#include "fabric/tcp/internal/tcp_listener.h"

namespace pmstore::fabric::tcp {

using internal::DestructionWatch;

TcpRegion::TcpRegion(TcpDevice& device, std::span<std::byte> memory, Access access, uint64_t key)
    : MemoryRegion(memory, access), device_(device) {
  remote_ = RemoteRegion{internal::address_base(key), memory.size(), key};
}

TcpRegion::~TcpRegion() { device_.withdraw(*this); }

TcpDevice::TcpDevice(base::Executor& executor) : PolledDevice(executor, Scheme::kTcp) {}

Result<std::unique_ptr<Device>> TcpDevice::open(base::Executor& executor) {
  std::unique_ptr<TcpDevice> device(new TcpDevice(executor));
  device->epoll_fd_ = epoll_create1(EPOLL_CLOEXEC);
  if (device->epoll_fd_ < 0) {
    return make_error(ErrorCode::kIo, std::string("cannot create an epoll set: ") +
                                          strerror(errno) + "; check the limit of open files");
  }
  return std::unique_ptr<Device>(std::move(device));
}

TcpDevice::~TcpDevice() {
  PMSTORE_CHECK(regions_.empty(), "regions use their device to the end");
  if (epoll_fd_ >= 0) close(epoll_fd_);
}

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
  for (const Watched& watched : watched_) watched.connection->withdraw(region);
}

void TcpDevice::watch(int fd, TcpConnection& connection) {
  watched_.push_back({&connection, fd});
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = &connection;
  // Fails only when the kernel is out of memory; then it is found out that nobody serves the peer.
  epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event);
}

void TcpDevice::forget(int fd, TcpConnection& connection) {
  std::erase(dirty_, &connection);
  if (std::erase_if(watched_, [&](const Watched& w) { return w.connection == &connection; }) > 0) {
    epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr);
  }
}

bool TcpDevice::is_watched(const TcpConnection* connection) const {
  return std::any_of(watched_.begin(), watched_.end(),
                     [&](const Watched& w) { return w.connection == connection; });
}

void TcpDevice::flush_dirty() {
  std::erase_if(dirty_, [](TcpConnection* connection) { return connection->flush_dirty(); });
}

size_t TcpDevice::poll_queues() {
  DestructionWatch watch(lifetime_);
  flush_dirty();
  const size_t handled = watched_.size() <= kReadAll ? PolledDevice::poll_queues() : poll_ready();
  if (!watch.destroyed()) flush_dirty();
  return handled;
}

size_t TcpDevice::poll_ready() {
  epoll_event ready[kMaxReady];
  const int count = epoll_wait(epoll_fd_, ready, kMaxReady, 0);
  size_t handled = 0;
  DestructionWatch watch(lifetime_);
  for (int i = 0; i < count && !watch.destroyed(); ++i) {
    auto* const connection = static_cast<TcpConnection*>(ready[i].data.ptr);
    // A callback may have destroyed one that was ready.
    if (is_watched(connection)) handled += std::max<size_t>(1, connection->poll());
  }
  return handled;
}

Result<std::unique_ptr<internal::PolledConnection>> TcpDevice::dial(
    const Uri& uri, const internal::ConnectionOptions& options) {
  Result<std::vector<SocketAddress>> addresses = resolve(uri.name, uri.port, false);
  if (!addresses) return make_error(ErrorCode::kDisconnected, addresses.error().message);
  PMSTORE_TRY(std::unique_ptr<TcpConnection> connection,
              TcpConnection::dial(*this, std::move(*addresses), options, uri.to_string()));
  return std::unique_ptr<internal::PolledConnection>(std::move(connection));
}

Result<std::unique_ptr<Listener>> TcpDevice::listen(const Uri& uri, Acceptor& acceptor) {
  return TcpListener::open(*this, uri, acceptor);
}

}  // namespace pmstore::fabric::tcp
