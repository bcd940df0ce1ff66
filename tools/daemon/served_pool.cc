#include "tools/daemon/served_pool.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <nlohmann/json.hpp>

namespace pmstore::tools {
namespace {

constexpr int kPatienceMs = 2000;
constexpr size_t kMaxAnswer = 64 * 1024;

struct Address {
  sockaddr_un name{};
  socklen_t bytes = 0;
  uid_t owner = 0;  // of the pool
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name); }
};

Error socket_error(std::string_view what) {
  return make_error(ErrorCode::kIo, fmt::format("cannot {}: {}", what, std::strerror(errno)));
}

Result<Address> address_of(const std::string& pool) {
  struct stat status {};
  if (stat(pool.c_str(), &status) != 0) return socket_error("look at '" + pool + "'");
  const bool device = S_ISCHR(status.st_mode);
  const std::string text = device ? fmt::format("pmstore-device-{}", status.st_rdev)
                                  : fmt::format("pmstore-file-{}-{}", status.st_dev, status.st_ino);
  Address address;
  address.owner = status.st_uid;
  address.name.sun_family = AF_UNIX;
  // The first byte stays 0: the abstract namespace.
  std::memcpy(address.name.sun_path + 1, text.data(), text.size());
  address.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  return address;
}

base::FileDescriptor make_socket() {
  return base::FileDescriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

Error nobody(const std::string& pool) {
  return make_error(ErrorCode::kNotFound, "no server answers for '" + pool + "'");
}

bool is_trusted(int fd, uid_t owner) {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) return false;
  return peer.uid == 0 || peer.uid == geteuid() || peer.uid == owner;
}

std::string read_all(int fd) {
  std::string text;
  char piece[4096];
  while (text.size() < kMaxAnswer) {
    pollfd ready{fd, POLLIN, 0};
    if (poll(&ready, 1, kPatienceMs) != 1) break;
    const ssize_t bytes = read(fd, piece, sizeof piece);
    if (bytes <= 0) break;
    text.append(piece, static_cast<size_t>(bytes));
  }
  return text;
}

}  // namespace

Result<ServedPool> ServedPool::announce(const std::string& pool,
                                        const std::vector<fabric::Uri>& listen) {
  PMSTORE_TRY(const Address address, address_of(pool));
  ServedPool served;
  served.socket_ = make_socket();
  if (!served.socket_) return socket_error("make a socket");
  if (bind(served.socket_.get(), address.get(), address.bytes) != 0) {
    return socket_error("take the pool's name on this machine");
  }
  if (::listen(served.socket_.get(), SOMAXCONN) != 0) return socket_error("listen");
  nlohmann::json answer = {{"pid", getpid()}, {"listen", nlohmann::json::array()}};
  for (const fabric::Uri& uri : listen) answer["listen"].push_back(uri.to_string());
  served.text_ = answer.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  return served;
}

bool ServedPool::answer() {
  while (true) {
    const base::FileDescriptor asker(
        accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!asker) return errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM;
    // A program that does not receive the answer asks again.
    (void)send(asker.get(), text_.data(), text_.size(), MSG_NOSIGNAL);
  }
}

Result<ServedAt> find_server(const std::string& pool) {
  PMSTORE_TRY(const Address address, address_of(pool));
  const base::FileDescriptor asking = make_socket();
  if (!asking || connect(asking.get(), address.get(), address.bytes) != 0 ||
      !is_trusted(asking.get(), address.owner)) {
    return nobody(pool);
  }
  const auto answer = nlohmann::json::parse(read_all(asking.get()), nullptr, false);
  ServedAt found;
  if (!answer.is_object() || !answer.contains("pid") || !answer.contains("listen")) {
    return nobody(pool);
  }
  if (!answer["pid"].is_number_integer() || !answer["listen"].is_array()) return nobody(pool);
  found.pid = answer["pid"].get<int>();
  for (const auto& uri : answer["listen"]) {
    if (uri.is_string()) found.listen.push_back(uri.get<std::string>());
  }
  if (found.listen.empty()) return nobody(pool);
  return found;
}

}  // namespace pmstore::tools
