// ServiceManager: tells the service manager that has started this process, as systemd does with
// Type=notify, what the daemon does: its status in words, when it serves, when it stops.
//
// Each message is a datagram to the socket that NOTIFY_SOCKET names, of lines NAME=VALUE
// (sd_notify(3)). Threads: one. Errors: a message that cannot be sent, or for which the socket has
// no room, is dropped: serving never waits for the manager. Without NOTIFY_SOCKET, or with one that
// names no Unix socket, every call does nothing.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstdint>
#include <string_view>

#include "base/file_descriptor.h"

namespace pmstore::tools {

class ServiceManager {
 public:
  // `notify_socket`: the value of NOTIFY_SOCKET, a path or, behind an @, a name in the abstract
  // namespace; may be nullptr.
  explicit ServiceManager(const char* notify_socket);

  // The start has got so far, and goes on: the manager's limit of its time is at least kMoreTimeUs
  // from now.
  void starting(std::string_view status) const;
  static constexpr uint64_t kMoreTimeUs = 60'000'000;
  // Clients are served from here on.
  void ready(std::string_view status) const;
  // No client is served any more.
  void stopping(std::string_view status) const;
  bool is_told() const { return static_cast<bool>(socket_); }

 private:
  void send(std::string_view message) const;

  base::FileDescriptor socket_;  // none: nothing is told
  sockaddr_un address_{};
  socklen_t address_bytes_ = 0;
};

}  // namespace pmstore::tools
