#include "tests/scenario/fabric/slow_peer.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/clock.h"

namespace pmstore::scenario {

namespace {

// Small, so that what the target sends backs up after a few hundred KiB.
constexpr int kSocketBytes = 32 * 1024;
constexpr size_t kLaneBytes = 64 * 1024;
constexpr size_t kPieceBytes[] = {1, 7, 32, 33, 500, 4000, 16'000, kLaneBytes};

sockaddr_in address_of(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

base::FileDescriptor open_socket() {
  base::FileDescriptor fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &kSocketBytes, sizeof kSocketBytes);
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDBUF, &kSocketBytes, sizeof kSocketBytes);
  return fd;
}

void send_pieces_at_once(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void sleep_us(uint64_t us) { std::this_thread::sleep_for(std::chrono::microseconds(us)); }

}  // namespace

bool SlowPeer::possible() {
  return scheme() == fabric::Scheme::kTcp || scheme() == fabric::Scheme::kShm;
}

Result<std::unique_ptr<SlowPeer>> SlowPeer::start(Target& target, uint64_t seed) {
  std::unique_ptr<SlowPeer> peer(new SlowPeer(target, seed));
  if (scheme() == fabric::Scheme::kTcp) {
    PMSTORE_TRY_STATUS(peer->listen());
    peer->thread_ = std::thread([self = peer.get()] { self->relay(); });
  } else {
    peer->thread_ = std::thread([self = peer.get()] { self->stop_and_go(); });
  }
  return peer;
}

SlowPeer::~SlowPeer() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

Status SlowPeer::listen() {
  listener_ = open_socket();
  sockaddr_in address = address_of(0);
  socklen_t bytes = sizeof address;
  if (bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), bytes) != 0 ||
      ::listen(listener_.get(), 16) != 0 ||
      getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &bytes) != 0) {
    return make_error(ErrorCode::kIo, strerror(errno));
  }
  way_ = fabric::Uri{fabric::Scheme::kTcp, "127.0.0.1", ntohs(address.sin_port)};
  return {};
}

void SlowPeer::relay() {
  base::RealClock clock;
  while (!stop_) {
    pollfd waiting{listener_.get(), POLLIN, 0};
    if (::poll(&waiting, 1, 0) > 0) accept_one();
    const uint64_t now_ns = clock.now_ns();
    for (Lane& lane : lanes_) move(lane, now_ns);
    sleep_us(random_.below(20) == 0 ? random_.below(300) : 1);
  }
}

void SlowPeer::accept_one() {
  base::FileDescriptor near(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  base::FileDescriptor far = open_socket();
  const sockaddr_in address = address_of(target_.uri().port);
  if (!near || connect(far.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address)) {
    return;
  }
  send_pieces_at_once(near.get());
  send_pieces_at_once(far.get());
  lanes_.push_back({near.get(), far.get(), {}});
  lanes_.push_back({far.get(), near.get(), {}});
  sockets_.push_back(std::move(near));
  sockets_.push_back(std::move(far));
}

void SlowPeer::move(Lane& lane, uint64_t now_ns) {
  if (lane.over || now_ns < lane.rests_until_ns) return;
  if (lane.sent == lane.waiting.size()) {
    lane.waiting.resize(kLaneBytes);
    lane.sent = 0;
    const ssize_t got = recv(lane.from, lane.waiting.data(), kLaneBytes, MSG_DONTWAIT);
    lane.waiting.resize(got > 0 ? static_cast<size_t>(got) : 0);
    if (got == 0 || (got < 0 && errno != EAGAIN)) {
      lane.over = true;
      shutdown(lane.to, SHUT_WR);
    }
  }
  const size_t piece =
      std::min(lane.waiting.size() - lane.sent, kPieceBytes[random_.below(std::size(kPieceBytes))]);
  if (piece == 0) return;
  const ssize_t put =
      ::send(lane.to, lane.waiting.data() + lane.sent, piece, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (put > 0) lane.sent += static_cast<size_t>(put);
  if (put < 0 && errno != EAGAIN) lane.over = true;
  if (random_.below(200) == 0) lane.rests_until_ns = now_ns + random_.below(4'000'000);
}

void SlowPeer::stop_and_go() {
  while (!stop_) {
    target_.pause();
    sleep_us(random_.below(2'000));
    target_.resume();
    sleep_us(random_.below(2'000));
  }
}

}  // namespace pmstore::scenario
