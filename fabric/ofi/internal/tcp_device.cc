#include "fabric/ofi/internal/tcp_device.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace pmstore::fabric::ofi {

TcpDevice::TcpDevice(base::Executor& executor, std::unique_ptr<Provider> provider)
    : OfiDevice(executor, std::move(provider)) {}

Result<std::unique_ptr<Device>> TcpDevice::open(base::Executor& executor) {
  PMSTORE_TRY(std::unique_ptr<Provider> provider, Provider::open(Scheme::kTcp));
  std::unique_ptr<TcpDevice> device(new TcpDevice(executor, std::move(provider)));
  fi_eq_attr attributes{};
  attributes.wait_obj = FI_WAIT_NONE;
  fid_eq* events = nullptr;
  if (int r = fi_eq_open(device->provider().fabric(), &attributes, &events, nullptr); r != 0) {
    return ofi_error("cannot open an event queue", r, "check the limit of open files");
  }
  device->events_.reset(events);
  device->epoll_fd_ = epoll_create1(EPOLL_CLOEXEC);
  if (device->epoll_fd_ < 0) {
    return make_error(ErrorCode::kIo, std::string("cannot create an epoll set: ") +
                                          strerror(errno) + "; check the limit of open files");
  }
  return std::unique_ptr<Device>(std::move(device));
}

TcpDevice::~TcpDevice() {
  if (epoll_fd_ >= 0) close(epoll_fd_);
}

void TcpDevice::watch_queue(int queue_fd, TcpConnection& connection) {
  watched_.push_back({&connection, queue_fd});
  if (watched_.size() <= kPollAll) return;
  if (watched_.size() > kPollAll + 1) return add_to_set(watched_.back());
  for (const Watched& watched : watched_) add_to_set(watched);
}

void TcpDevice::add_to_set(const Watched& watched) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = watched.connection;
  // Fails only when the kernel is out of memory; then the regular look at all queues still serves
  // it.
  epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, watched.queue_fd, &event);
}

void TcpDevice::forget_queue(int queue_fd, TcpConnection& connection) {
  const bool in_set = watched_.size() > kPollAll;
  std::erase_if(watched_, [&](const Watched& w) { return w.connection == &connection; });
  if (!in_set) return;
  epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, queue_fd, nullptr);
  if (watched_.size() > kPollAll) return;
  for (const Watched& w : watched_) epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, w.queue_fd, nullptr);
}

TcpConnection* TcpDevice::find(const fid* endpoint) const {
  auto found = std::find_if(watched_.begin(), watched_.end(),
                            [&](const Watched& w) { return w.connection->has_endpoint(endpoint); });
  return found == watched_.end() ? nullptr : found->connection;
}

bool TcpDevice::is_watched(const TcpConnection* connection) const {
  return std::any_of(watched_.begin(), watched_.end(),
                     [&](const Watched& w) { return w.connection == connection; });
}

size_t TcpDevice::poll_queues() {
  ++polls_;
  size_t handled = 0;
  DestructionWatch watch(lifetime_);
  if (polls_ % kQuietPolls == 0) {
    // Now and then all are looked at: a queue that waits for room in a socket need not be readable.
    handled = OfiDevice::poll_queues();
  } else if (watched_.size() > kPollAll || quiet_polls_ >= kQuietPolls ||
             polls_ % kSampleEvery == 0) {
    handled = poll_ready();
  } else {
    handled = OfiDevice::poll_queues();
  }
  if (watch.destroyed()) return handled;
  quiet_polls_ = handled > 0 ? 0 : quiet_polls_ + 1;
  return handled;
}

size_t TcpDevice::serve(TcpConnection* connection) {
  // A callback may have destroyed a connection that was ready.
  if (!is_watched(connection)) return 0;
  // What was there may have been a READ or WRITE, which makes no completion at the target.
  return std::max<size_t>(1, connection->poll());
}

size_t TcpDevice::poll_ready() {
  size_t handled = 0;
  DestructionWatch watch(lifetime_);
  if (watched_.size() <= kPollAll) {
    pollfd queues[kPollAll];
    TcpConnection* connections[kPollAll];
    const size_t count = watched_.size();
    for (size_t i = 0; i < count; ++i) {
      queues[i] = {watched_[i].queue_fd, POLLIN, 0};
      connections[i] = watched_[i].connection;
    }
    if (count == 0 || ::poll(queues, count, 0) <= 0) return 0;
    for (size_t i = 0; i < count && !watch.destroyed(); ++i) {
      if (queues[i].revents != 0) handled += serve(connections[i]);
    }
    return handled;
  }
  epoll_event ready[kMaxReady];
  const int count = epoll_wait(epoll_fd_, ready, kMaxReady, 0);
  for (int i = 0; i < count && !watch.destroyed(); ++i) {
    handled += serve(static_cast<TcpConnection*>(ready[i].data.ptr));
  }
  return handled;
}

void TcpDevice::poll_events() {
  // Room for connection parameters, which we do not use but a stranger may send.
  alignas(fi_eq_cm_entry) std::byte buffer[sizeof(fi_eq_cm_entry) + 512];
  constexpr int kMaxEvents = 64;
  DestructionWatch watch(lifetime_);
  for (int i = 0; i < kMaxEvents && !watch.destroyed(); ++i) {
    uint32_t event = 0;
    const ssize_t r = fi_eq_read(events_.get(), &event, buffer, sizeof buffer, 0);
    if (r == -FI_EAVAIL) {
      handle_event_error();
      continue;
    }
    if (r < static_cast<ssize_t>(sizeof(fi_eq_cm_entry))) return;
    fi_eq_cm_entry entry;
    std::memcpy(&entry, buffer, sizeof entry);
    handle_event(event, entry);
  }
}

void TcpDevice::handle_event(uint32_t event, const fi_eq_cm_entry& entry) {
  if (event == FI_CONNREQ) {
    auto found = std::find_if(tcp_listeners_.begin(), tcp_listeners_.end(),
                              [&](TcpListener* l) { return l->endpoint() == entry.fid; });
    if (found != tcp_listeners_.end()) {
      (*found)->on_request(entry.info);
    } else {
      fi_freeinfo(entry.info);
    }
    return;
  }
  TcpConnection* connection = find(entry.fid);
  if (connection == nullptr) return;
  if (event == FI_CONNECTED) connection->on_connected();
  if (event == FI_SHUTDOWN) connection->on_shutdown();
}

void TcpDevice::handle_event_error() {
  fi_eq_err_entry error{};
  if (fi_eq_readerr(events_.get(), &error, 0) <= 0) return;
  if (TcpConnection* connection = find(error.fid)) connection->on_connect_error(error.err);
}

Result<std::unique_ptr<OfiConnection>> TcpDevice::dial(const Uri& uri,
                                                       const ConnectionOptions& options) {
  Result<InfoPtr> info = provider().resolve(uri.name, uri.port, 0);
  if (!info) return make_error(ErrorCode::kDisconnected, info.error().message);
  PMSTORE_TRY(std::unique_ptr<TcpConnection> connection,
              TcpConnection::dial(*this, **info, options, uri.to_string()));
  return std::unique_ptr<OfiConnection>(std::move(connection));
}

Result<std::unique_ptr<Listener>> TcpDevice::listen(const Uri& uri, Acceptor& acceptor) {
  return TcpListener::open(*this, uri, acceptor);
}

TcpListener::TcpListener(TcpDevice& device, Uri uri, Acceptor& acceptor, FidPtr<fid_pep> endpoint)
    : HandshakeListener(device, std::move(uri), acceptor),
      tcp_(device),
      endpoint_(std::move(endpoint)) {
  tcp_.add_tcp(*this);
}

TcpListener::~TcpListener() { tcp_.remove_tcp(*this); }

Result<std::unique_ptr<Listener>> TcpListener::open(TcpDevice& device, const Uri& uri,
                                                    Acceptor& acceptor) {
  if (uri.scheme != Scheme::kTcp) {
    return make_error(ErrorCode::kInvalidArgument, uri.to_string() + " is not a tcp address");
  }
  PMSTORE_TRY(InfoPtr info, device.provider().resolve(uri.name, uri.port, FI_SOURCE));
  const std::string what = "cannot listen at " + uri.to_string();
  const std::string remedy = "choose a free port and an address of this host";
  fid_pep* raw = nullptr;
  if (int r = fi_passive_ep(device.provider().fabric(), info.get(), &raw, nullptr); r != 0) {
    return ofi_error(what, r, remedy);
  }
  FidPtr<fid_pep> endpoint(raw);
  if (int r = fi_pep_bind(raw, &device.events()->fid, 0); r != 0) return ofi_error(what, r, remedy);
  if (int r = fi_listen(raw); r != 0) return ofi_error(what, r, remedy);
  sockaddr_storage address{};
  size_t bytes = sizeof address;
  if (int r = fi_getname(&raw->fid, &address, &bytes); r != 0) return ofi_error(what, r, remedy);
  Uri actual = uri;
  actual.port =
      ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                          : reinterpret_cast<const sockaddr_in&>(address).sin_port);
  return std::unique_ptr<Listener>(
      new TcpListener(device, std::move(actual), acceptor, std::move(endpoint)));
}

void TcpListener::on_request(fi_info* info) {
  InfoPtr owned(info);
  if (full()) {
    fi_reject(endpoint_.get(), info->handle, nullptr, 0);
    return;
  }
  Result<std::unique_ptr<TcpConnection>> connection =
      TcpConnection::accept(tcp_, *info, kAcceptedOptions);
  // Out of files or memory: this client is lost, the others are served.
  if (connection) take(std::move(*connection));
}

}  // namespace pmstore::fabric::ofi
