#include "fabric/shm/internal/shm_socket.h"

#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "fabric/internal/handshake.h"

namespace pmstore::fabric::shm {

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
  if (!is_of_this_user()) {
    return make_error(ErrorCode::kAccess, "the server at shm://" + name +
                                              " runs as another user; use tcp:// or the same user");
  }
  return true;
}

Result<std::optional<ShmSocket>> ShmSocket::accept() {
  // Anybody may knock. The socket stays readable, so the next look comes back for the others.
  constexpr int kTurnedAwayAtOnce = 8;
  for (int i = 0; i < kTurnedAwayAtOnce; ++i) {
    ShmSocket client(accept4(fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!client.fd_) {
      const bool exhausted =
          errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      if (exhausted) return make_error(ErrorCode::kIo, strerror(errno));
      return std::optional<ShmSocket>();
    }
    if (client.is_of_this_user()) return std::optional<ShmSocket>(std::move(client));
    // Best effort; closing says enough.
    static_cast<void>(client.send(internal::encode_refusal(
        make_error(ErrorCode::kAccess, "the server runs as another user; use tcp://"))));
  }
  return std::optional<ShmSocket>();
}

// A process that has a segment can change what arrives there.
bool ShmSocket::is_of_this_user() const {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  return getsockopt(fd(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == geteuid();
}

uint64_t ShmSocket::peer_process() const {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  const bool known = getsockopt(fd(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0;
  return known ? static_cast<uint64_t>(peer.pid) : 0;
}

Status ShmSocket::send(std::span<const std::byte> message, std::span<const int> descriptors) {
  PMSTORE_CHECK(descriptors.size() <= kMaxDescriptors, "the peer takes no more");
  iovec piece{const_cast<std::byte*>(message.data()), message.size()};
  alignas(cmsghdr) char room[CMSG_SPACE(kMaxDescriptors * sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  if (!descriptors.empty()) {
    header.msg_control = room;
    header.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* const control = CMSG_FIRSTHDR(&header);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(control), descriptors.data(), descriptors.size_bytes());
  }
  const ssize_t sent = sendmsg(fd(), &header, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent == static_cast<ssize_t>(message.size())) return {};
  return make_error(ErrorCode::kDisconnected,
                    std::string("cannot send a handshake: ") + strerror(errno));
}

ShmSocket::Received ShmSocket::receive(std::vector<std::byte>& message,
                                       std::vector<base::FileDescriptor>& descriptors) {
  message.resize(internal::kMaxMessageBytes);
  descriptors.clear();
  iovec piece{message.data(), message.size()};
  alignas(cmsghdr) char room[CMSG_SPACE(kMaxDescriptors * sizeof(int))];
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  header.msg_control = room;
  header.msg_controllen = sizeof room;
  // The kernel closes the descriptors that have no room here.
  const ssize_t bytes = recvmsg(fd(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (bytes < 0) {
    message.clear();
    return errno == EAGAIN || errno == EINTR ? Received::kNothing : Received::kClosed;
  }
  for (cmsghdr* control = CMSG_FIRSTHDR(&header); control != nullptr;
       control = CMSG_NXTHDR(&header, control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = 0; CMSG_LEN(at + sizeof(int)) <= control->cmsg_len; at += sizeof(int)) {
      int descriptor;
      std::memcpy(&descriptor, CMSG_DATA(control) + at, sizeof descriptor);
      descriptors.emplace_back(descriptor);
    }
  }
  message.resize(static_cast<size_t>(bytes));
  if (bytes > 0) return Received::kMessage;
  descriptors.clear();  // of an empty message, which ends the connection as well
  return Received::kClosed;
}

}  // namespace pmstore::fabric::shm
