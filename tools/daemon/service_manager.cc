#include "tools/daemon/service_manager.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

namespace pmstore::tools {
namespace {

// A value ends with its line.
std::string in_one_line(std::string_view text) {
  std::string line(text);
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line;
}

}  // namespace

ServiceManager::ServiceManager(const char* notify_socket) {
  const std::string_view name = notify_socket == nullptr ? "" : notify_socket;
  const bool is_abstract = name.starts_with('@');
  if ((!is_abstract && !name.starts_with('/')) || name.size() < 2) return;
  if (name.size() >= sizeof address_.sun_path) return;
  address_.sun_family = AF_UNIX;
  std::memcpy(address_.sun_path, name.data(), name.size());
  if (is_abstract) address_.sun_path[0] = '\0';
  address_bytes_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  socket_ = base::FileDescriptor(socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

void ServiceManager::starting(std::string_view status) const {
  send(fmt::format("STATUS={}\nEXTEND_TIMEOUT_USEC={}\n", in_one_line(status), kMoreTimeUs));
}

void ServiceManager::ready(std::string_view status) const {
  send(fmt::format("READY=1\nSTATUS={}\n", in_one_line(status)));
}

void ServiceManager::stopping(std::string_view status) const {
  send(fmt::format("STOPPING=1\nSTATUS={}\n", in_one_line(status)));
}

void ServiceManager::send(std::string_view message) const {
  if (!socket_) return;
  (void)sendto(socket_.get(), message.data(), message.size(), MSG_NOSIGNAL,
               reinterpret_cast<const sockaddr*>(&address_), address_bytes_);
}

}  // namespace pmstore::tools
