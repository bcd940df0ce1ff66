#include "fabric/tcp/internal/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "fabric/device.h"

namespace pmstore::fabric::tcp {

namespace {

// As many as the kernel lets it be (net.core.somaxconn): a burst of clients waits there.
constexpr int kBacklog = 4096;
constexpr const char* kFilesRemedy = "check the limit of open files";

// Device::kPeerGoneNs: a peer that is silent and does not acknowledge three probes is gone. One
// that does not acknowledge what was sent to it is gone as late.
constexpr int kKeepIdleSeconds = 30;
constexpr int kKeepIntervalSeconds = 10;
constexpr int kKeepProbes = 3;
constexpr int kUserTimeoutMs = 1000 * (kKeepIdleSeconds + kKeepProbes * kKeepIntervalSeconds);
static_assert(uint64_t{kUserTimeoutMs} * 1'000'000 == Device::kPeerGoneNs);

void set(int fd, int level, int option, int value) {
  setsockopt(fd, level, option, &value, sizeof value);
}

// Each request is worth a packet of its own; what belongs together is sent together. The kernel
// watches connections on which nothing is sent.
void prepare(int fd) {
  set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(fd, IPPROTO_TCP, TCP_KEEPIDLE, kKeepIdleSeconds);
  set(fd, IPPROTO_TCP, TCP_KEEPINTVL, kKeepIntervalSeconds);
  set(fd, IPPROTO_TCP, TCP_KEEPCNT, kKeepProbes);
  set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMs);
}

Result<Socket> open_socket(int family) {
  const int fd = ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    return make_error(ErrorCode::kIo, std::string("cannot open a socket: ") + strerror(errno) +
                                          "; " + kFilesRemedy);
  }
  return Socket(fd);
}

// A port of this host that nobody listens at may be given to the very socket that connects there.
bool is_its_own_peer(int fd) {
  sockaddr_storage own{};
  sockaddr_storage peer{};
  socklen_t own_bytes = sizeof own;
  socklen_t peer_bytes = sizeof peer;
  return getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_bytes) == 0 &&
         getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_bytes) == 0 &&
         own_bytes == peer_bytes && std::memcmp(&own, &peer, own_bytes) == 0;
}

}  // namespace

Result<std::vector<SocketAddress>> resolve(const std::string& host, uint16_t port, bool to_listen) {
  std::string node = host;
  if (node.size() > 2 && node.front() == '[' && node.back() == ']') {
    node = node.substr(1, node.size() - 2);
  }
  const std::string service = std::to_string(port);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (to_listen ? AI_PASSIVE : 0);
  addrinfo* found = nullptr;
  const int code = getaddrinfo(node.c_str(), service.c_str(), &hints, &found);
  if (code != 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "no address for tcp://" + host + ":" + service + ": " + gai_strerror(code) +
                          "; check that the name resolves and that this host has a route to it");
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    if (info->ai_family != AF_INET && info->ai_family != AF_INET6) continue;
    SocketAddress address{};
    std::memcpy(&address.storage, info->ai_addr, info->ai_addrlen);
    address.bytes = info->ai_addrlen;
    addresses.push_back(address);
  }
  std::stable_partition(addresses.begin(), addresses.end(), [](const SocketAddress& address) {
    return address.storage.ss_family == AF_INET;
  });
  return addresses;
}

Result<Socket> Socket::listen(const SocketAddress& address) {
  PMSTORE_TRY(Socket socket, open_socket(address.storage.ss_family));
  const int on = 1;
  setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(socket.fd(), reinterpret_cast<const sockaddr*>(&address.storage), address.bytes) != 0 ||
      ::listen(socket.fd(), kBacklog) != 0) {
    return make_error(ErrorCode::kIo, strerror(errno));
  }
  return socket;
}

Result<Socket> Socket::connect(const SocketAddress& address) {
  PMSTORE_TRY(Socket socket, open_socket(address.storage.ss_family));
  prepare(socket.fd());
  if (::connect(socket.fd(), reinterpret_cast<const sockaddr*>(&address.storage), address.bytes) !=
          0 &&
      errno != EINPROGRESS) {
    return make_error(ErrorCode::kDisconnected, strerror(errno));
  }
  return socket;
}

internal::Origin origin_of(const SocketAddress& address) {
  constexpr uint64_t kIpv4 = uint64_t{0xffff} << 32;
  if (address.storage.ss_family == AF_INET) {
    const auto& ipv4 = reinterpret_cast<const sockaddr_in&>(address.storage);
    return {0, kIpv4 | ntohl(ipv4.sin_addr.s_addr)};
  }
  const in6_addr& ipv6 = reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_addr;
  const auto word = [&](size_t at) {
    uint32_t value;
    std::memcpy(&value, ipv6.s6_addr + at, sizeof value);
    return uint64_t{ntohl(value)};
  };
  if (IN6_IS_ADDR_V4MAPPED(&ipv6)) return {0, kIpv4 | word(12)};
  return {word(0) << 32 | word(4), 0};
}

Result<std::optional<Socket::Client>> Socket::accept() {
  SocketAddress peer{};
  peer.bytes = sizeof peer.storage;
  Socket client(accept4(fd(), reinterpret_cast<sockaddr*>(&peer.storage), &peer.bytes,
                        SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!client.open()) {
    const bool exhausted =
        errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
    if (exhausted) return make_error(ErrorCode::kIo, strerror(errno));
    return std::optional<Client>();
  }
  prepare(client.fd());
  return std::optional<Client>({std::move(client), origin_of(peer)});
}

bool Socket::has_client() const {
  pollfd wanted{fd(), POLLIN, 0};
  return ::poll(&wanted, 1, 0) > 0;
}

Result<bool> Socket::connected() const {
  pollfd wanted{fd(), POLLOUT, 0};
  if (::poll(&wanted, 1, 0) <= 0) return false;
  int code = 0;
  socklen_t bytes = sizeof code;
  if (getsockopt(fd(), SOL_SOCKET, SO_ERROR, &code, &bytes) != 0) code = errno;
  if (code == 0 && is_its_own_peer(fd())) code = ECONNREFUSED;
  if (code != 0) return make_error(ErrorCode::kDisconnected, strerror(code));
  return true;
}

Result<uint16_t> Socket::port() const {
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  if (getsockname(fd(), reinterpret_cast<sockaddr*>(&address), &bytes) != 0) {
    return make_error(ErrorCode::kIo, strerror(errno));
  }
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

}  // namespace pmstore::fabric::tcp
