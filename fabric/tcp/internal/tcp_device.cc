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
  wires_.clear();
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
  for (const auto& wire : wires_) wire->withdraw(region);
}

void TcpDevice::watch(int fd, Wire& wire) {
  watched_.push_back(&wire);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = &wire;
  // Fails only when the kernel is out of memory; then the peer finds that nobody serves it.
  epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event);
}

void TcpDevice::forget(int fd, Wire& wire) {
  std::erase(dirty_, &wire);
  if (std::erase(watched_, &wire) > 0) epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr);
}

void TcpDevice::adopt(Socket socket, TcpListener& listener) {
  if (wires_.size() >= kMaxWires) return;
  wires_.push_back(std::make_unique<Wire>(*this, std::move(socket), listener, executor_.now_ns()));
}

void TcpDevice::forget_listener(const TcpListener& listener) {
  for (const auto& wire : wires_) wire->forget_listener(listener);
}

void TcpDevice::close_idle_wires(uint64_t now_ns) {
  if (now_ns < kIdleNs) return;
  for (const auto& wire : wires_) wire->close_if_idle_since(now_ns - kIdleNs);
}

void TcpDevice::reap() {
  std::erase_if(wires_, [](const auto& wire) { return wire->over(); });
}

void TcpDevice::flush_dirty() {
  std::erase_if(dirty_, [](Wire* wire) {
    wire->dirty = !wire->flush();
    return !wire->dirty;
  });
}

size_t TcpDevice::poll_queues() {
  DestructionWatch watch(lifetime_);
  reap();
  flush_dirty();
  const size_t handled = watched_.size() <= kReadAll ? read_all() : read_ready();
  if (!watch.destroyed()) flush_dirty();
  return handled;
}

size_t TcpDevice::read_all() {
  DestructionWatch watch(lifetime_);
  Wire* now[kReadAll];
  const size_t count = watched_.size();
  std::copy(watched_.begin(), watched_.end(), now);
  size_t handled = 0;
  for (size_t i = 0; i < count && !watch.destroyed(); ++i) {
    // Wires are deleted by reap() only, so this one is there, though perhaps over.
    if (!now[i]->over()) handled += now[i]->receive();
  }
  return handled;
}

size_t TcpDevice::read_ready() {
  epoll_event ready[kMaxReady];
  const int count = epoll_wait(epoll_fd_, ready, kMaxReady, 0);
  size_t handled = 0;
  DestructionWatch watch(lifetime_);
  for (int i = 0; i < count && !watch.destroyed(); ++i) {
    auto* const wire = static_cast<Wire*>(ready[i].data.ptr);
    if (!wire->over()) handled += wire->receive();
  }
  return handled;
}

Result<std::unique_ptr<internal::PolledConnection>> TcpDevice::dial(
    const Uri& uri, const internal::ConnectionOptions& options) {
  const std::string where = uri.to_string();
  const auto shared = std::find_if(wires_.begin(), wires_.end(), [&](const auto& wire) {
    return wire->dialed() && !wire->over() && !wire->retired() && wire->where() == where;
  });
  if (shared != wires_.end()) return std::make_unique<TcpConnection>(*this, **shared, options);
  Result<std::vector<SocketAddress>> addresses = resolve(uri.name, uri.port, false);
  if (!addresses) return make_error(ErrorCode::kDisconnected, addresses.error().message);
  auto wire = std::make_unique<Wire>(*this, std::move(*addresses), where);
  PMSTORE_TRY_STATUS(wire->connect_next());
  wires_.push_back(std::move(wire));
  return std::make_unique<TcpConnection>(*this, *wires_.back(), options);
}

Result<std::unique_ptr<Listener>> TcpDevice::listen(const Uri& uri, Acceptor& acceptor) {
  return TcpListener::open(*this, uri, acceptor);
}

}  // namespace pmstore::fabric::tcp
