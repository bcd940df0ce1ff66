#include "fabric/ofi/internal/shm_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "fabric/internal/handshake.h"

namespace pmstore::fabric::ofi {

namespace {

constexpr std::string_view kPrefix = "pmstore-shm/";

struct Address {
  sockaddr_un socket{};
  socklen_t bytes = 0;
};

// A leading zero byte makes the name abstract: it lives as long as the socket and needs no file.
Result<Address> address_of(const std::string& name) {
  Address address;
  const size_t room = sizeof address.socket.sun_path - 1 - kPrefix.size();
  if (name.empty() || name.size() > room) {
    return make_error(ErrorCode::kInvalidArgument, "'" + name +
                                                       "' is no name for a shm server; use 1 to " +
                                                       std::to_string(room) + " characters");
  }
  address.socket.sun_family = AF_UNIX;
  std::memcpy(address.socket.sun_path + 1, kPrefix.data(), kPrefix.size());
  std::memcpy(address.socket.sun_path + 1 + kPrefix.size(), name.data(), name.size());
  address.bytes =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + kPrefix.size() + name.size());
  return address;
}

const sockaddr* generic(const Address& address) {
  return reinterpret_cast<const sockaddr*>(&address.socket);
}

Error io_error(const std::string& what, const std::string& remedy) {
  return make_error(ErrorCode::kIo, what + ": " + strerror(errno) + "; " + remedy);
}

}  // namespace

Result<ShmSocket> ShmSocket::create(const std::string& name) {
  PMSTORE_TRY([[maybe_unused]] Address address, address_of(name));
  ShmSocket made(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!made.fd_) return io_error("cannot create a socket", "check the limit of open files");
  return made;
}

Result<ShmSocket> ShmSocket::listen(const std::string& name) {
  PMSTORE_TRY(Address address, address_of(name));
  PMSTORE_TRY(ShmSocket made, create(name));
  if (bind(made.fd(), generic(address), address.bytes) != 0) {
    return io_error("cannot listen at shm://" + name,
                    "another server has this name; stop it or choose another name");
  }
  constexpr int kBacklog = 64;
  if (::listen(made.fd(), kBacklog) != 0) {
    return io_error("cannot listen at shm://" + name, "choose another name");
  }
  return made;
}

Result<bool> ShmSocket::connect(const std::string& name) {
  PMSTORE_TRY(Address address, address_of(name));
  if (::connect(fd(), generic(address), address.bytes) != 0) {
    if (errno == EAGAIN || errno == EINTR) return false;  // its backlog is full
    return make_error(
        ErrorCode::kDisconnected,
        "nobody listens at shm://" + name + " (" + strerror(errno) +
            "); start pmstored there, or check the name and that it is not in another "
            "network namespace");
  }
  const Peer peer = identify();
  if (peer == Peer::kThisProcess) {
    // libfabric would use the server's own mapping, and crash when either end closes.
    return make_error(ErrorCode::kUnsupported,
                      "the server at shm://" + name + " is in this process; use local: or tcp://");
  }
  if (peer == Peer::kOtherUser) {
    return make_error(ErrorCode::kAccess, "the server at shm://" + name +
                                              " runs as another user; use tcp:// or the same user");
  }
  return true;
}

std::optional<ShmSocket> ShmSocket::accept() {
  ShmSocket client(accept4(fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!client.fd_) return {};
  if (client.identify() == Peer::kOtherUser) {
    // Best effort; closing says enough.
    static_cast<void>(client.send(internal::encode_refusal(
        make_error(ErrorCode::kAccess, "the server runs as another user; use tcp://"))));
    return {};
  }
  return client;
}

ShmSocket::Peer ShmSocket::identify() const {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  // The segments in /dev/shm are for one user only: a process that maps one can damage it.
  if (getsockopt(fd(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0 || peer.uid != geteuid()) {
    return Peer::kOtherUser;
  }
  return peer.pid == getpid() ? Peer::kThisProcess : Peer::kOk;
}

Status ShmSocket::send(std::span<const std::byte> message) {
  const ssize_t sent = ::send(fd(), message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent == static_cast<ssize_t>(message.size())) return {};
  return make_error(ErrorCode::kDisconnected,
                    std::string("cannot send a handshake: ") + strerror(errno));
}

ShmSocket::Received ShmSocket::receive(std::vector<std::byte>& message) {
  message.resize(internal::kMaxMessageBytes);
  const ssize_t bytes = recv(fd(), message.data(), message.size(), MSG_DONTWAIT);
  if (bytes > 0) {
    message.resize(static_cast<size_t>(bytes));
    return Received::kMessage;
  }
  message.clear();
  if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return Received::kNothing;
  return Received::kClosed;
}

}  // namespace pmstore::fabric::ofi
