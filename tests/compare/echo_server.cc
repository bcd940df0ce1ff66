#include "tests/compare/echo_server.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <string>

#include "tests/compare/load.h"

namespace pmstore::compare {
namespace {

struct Link {
  int socket = -1;
  std::string received;
};

class EchoServer {
 public:
  EchoServer() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in here{};
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(here);
    if (bind(listener_, reinterpret_cast<const sockaddr*>(&here), size) != 0 ||
        listen(listener_, 128) != 0 ||
        getsockname(listener_, reinterpret_cast<sockaddr*>(&here), &size) != 0) {
      fail("cannot listen at 127.0.0.1", std::strerror(errno));
    }
    watch(listener_, nullptr);
    std::printf("127.0.0.1:%d\n", ntohs(here.sin_port));
    std::fflush(stdout);
  }

  void turn() {
    const int ready = epoll_wait(epoll_, events_.data(), events_.size(), -1);
    for (int i = 0; i < ready; ++i) {
      auto* const link = static_cast<Link*>(events_[static_cast<size_t>(i)].data.ptr);
      if (link == nullptr) {
        accept();
      } else if (!serve(*link)) {
        close(link->socket);
        delete link;
      }
    }
  }

 private:
  void watch(int socket, Link* link) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = link;
    if (epoll_ctl(epoll_, EPOLL_CTL_ADD, socket, &event) != 0) {
      fail("cannot wait for a socket", std::strerror(errno));
    }
  }

  void accept() {
    const int socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket < 0) fail("cannot accept a connection", std::strerror(errno));
    const int on = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    watch(socket, new Link{socket, {}});
  }

  // False: the peer has gone, or sends what is no request.
  bool serve(Link& link) {
    const ssize_t got = recv(link.socket, buffer_.data(), buffer_.size(), 0);
    if (got <= 0) return false;
    link.received.append(buffer_.data(), static_cast<size_t>(got));
    EchoHeader header;
    while (link.received.size() >= sizeof(header)) {
      std::memcpy(&header, link.received.data(), sizeof(header));
      if (header.request_bytes < sizeof(header) || header.request_bytes > kMaxEchoBytes ||
          header.reply_bytes > kMaxEchoBytes) {
        return false;
      }
      if (link.received.size() < header.request_bytes) return true;
      link.received.erase(0, header.request_bytes);
      if (send(link.socket, reply_.data(), header.reply_bytes, MSG_NOSIGNAL) !=
          static_cast<ssize_t>(header.reply_bytes)) {
        return false;
      }
    }
    return true;
  }

  const int epoll_ = epoll_create1(EPOLL_CLOEXEC);
  const int listener_;
  std::array<epoll_event, 128> events_;
  std::array<char, kMaxEchoBytes> buffer_;
  std::array<char, kMaxEchoBytes> reply_{};
};

}  // namespace

void serve_echo() {
  EchoServer server;
  for (;;) server.turn();
}

}  // namespace pmstore::compare
