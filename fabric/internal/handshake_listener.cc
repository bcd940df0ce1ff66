#include "fabric/internal/handshake_listener.h"

#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "fabric/internal/polled_device.h"

namespace pmstore::fabric::internal {

HandshakeListener::HandshakeListener(PolledDevice& device, Uri uri, Acceptor& acceptor)
    : device_(device), uri_(std::move(uri)), acceptor_(acceptor) {
  device_.add(*this);
}

HandshakeListener::~HandshakeListener() {
  PMSTORE_CHECK(fd_ < 0, "a listener stops before its socket is closed");
  device_.remove(*this);
  for (Pending& pending : pending_) {
    device_.handshake_ended();
    if (pending.stage == Stage::kAwaitReady) acceptor_.on_abandoned(pending.token);
  }
}

Status HandshakeListener::start(int fd) {
  PMSTORE_CHECK(fd_ < 0, "a listener has one socket");
  PMSTORE_TRY_STATUS(device_.executor().watch(fd, EPOLLIN, *this));
  fd_ = fd;
  clients_wait_ = true;  // perhaps: the socket listens already
  return {};
}

void HandshakeListener::stop() {
  if (fd_ >= 0) device_.executor().unwatch(std::exchange(fd_, -1));
}

void HandshakeListener::on_ready(uint32_t) {
  if (retry_at_ns_ != 0) return;  // an error of the socket: the next try finds it
  clients_wait_ = true;
  device_.tick_soon();
}

void HandshakeListener::accept_new(uint64_t now_ns) {
  if (retry_at_ns_ != 0 && now_ns >= retry_at_ns_) {
    retry_at_ns_ = 0;
    clients_wait_ = true;
    device_.executor().change_watch(fd_, EPOLLIN, *this);
  }
  while (clients_wait_) {
    const Accepted accepted = accept_next();
    clients_wait_ = accepted == Accepted::kClient;
    if (accepted != Accepted::kNotNow) continue;
    // The socket stays readable: watched, it would keep the executor from blocking.
    device_.executor().change_watch(fd_, 0, *this);
    retry_at_ns_ = now_ns + kRetryNs;
  }
}

void HandshakeListener::take(std::unique_ptr<PolledConnection> connection) {
  device_.handshake_started();
  pending_.push_back(Pending{std::move(connection), next_token_++,
                             device_.executor().now_ns() + kTimeoutNs, Stage::kAwaitHello});
  device_.tick_soon();
}

void HandshakeListener::tick(uint64_t now_ns) {
  accept_new(now_ns);
  after_accepting();
  for (size_t i = 0; i < pending_.size();) {
    // Off the list while callbacks run.
    Pending pending = std::move(pending_[i]);
    if (advance(pending, now_ns)) {
      pending_[i++] = std::move(pending);
    } else {
      device_.handshake_ended();
      pending_.erase(pending_.begin() + static_cast<ptrdiff_t>(i));
    }
  }
}

uint64_t HandshakeListener::next_tick_ns(uint64_t) const {
  PMSTORE_CHECK(retry_at_ns_ == 0 || !clients_wait_, "a client that waits is tried later");
  uint64_t next_ns = retry_at_ns_ == 0 ? base::Poller::kNoEvent : retry_at_ns_;
  for (const Pending& pending : pending_) next_ns = std::min(next_ns, pending.deadline_ns);
  return next_ns;
}

bool HandshakeListener::advance(Pending& pending, uint64_t now_ns) {
  PolledConnection& connection = *pending.connection;
  if (auto message = connection.take_control()) {
    if (pending.stage == Stage::kAwaitHello) {
      if (Status answered = answer_hello(pending, *message); !answered) {
        refuse(pending, answered.error(), now_ns);
      }
      return true;
    }
    if (pending.stage == Stage::kAwaitReady) {
      Result<HandshakeMessage> ready = decode(*message);
      if (ready && ready->kind == MessageKind::kReady && !connection.broken()) {
        complete(pending);
      } else {
        acceptor_.on_abandoned(pending.token);
      }
      return false;
    }
  }
  if (!connection.broken() && now_ns < pending.deadline_ns) return true;
  if (pending.stage == Stage::kAwaitReady) acceptor_.on_abandoned(pending.token);
  return false;
}

Status HandshakeListener::answer_hello(Pending& pending, std::span<const std::byte> message) {
  PolledConnection& connection = *pending.connection;
  PMSTORE_TRY(HandshakeMessage hello, decode(message));
  if (hello.kind != MessageKind::kHello) {
    return make_error(ErrorCode::kProtocol, "a handshake starts with a hello");
  }
  PMSTORE_TRY_STATUS(connection.link(hello.endpoint));
  PMSTORE_TRY(std::vector<std::byte> blob, acceptor_.on_hello(pending.token, hello.body));
  pending.stage = Stage::kAwaitReady;
  connection.set_peer_hello(std::move(hello.body));
  Status sent;
  if (blob.size() > kMaxHelloBytes) {
    sent = make_error(ErrorCode::kInvalidArgument, "the server's own hello is over its limit");
  } else {
    sent = connection.send_control(
        encode({MessageKind::kAccept, connection.endpoint_name(), std::move(blob), {}}));
  }
  if (!sent) acceptor_.on_abandoned(pending.token);
  return sent;
}

void HandshakeListener::refuse(Pending& pending, const Error& why, uint64_t now_ns) {
  pending.stage = Stage::kRefused;
  pending.deadline_ns = now_ns + kRefusalNs;
  // Best effort: a peer that is gone already does not need it.
  if (Status sent = pending.connection->send_control(encode_refusal(why)); !sent) {
    pending.deadline_ns = now_ns;
  }
}

void HandshakeListener::complete(Pending& pending) {
  pending.connection->peer_has_linked();
  PolledConnection::give_away(std::move(pending.connection),
                              encode({MessageKind::kWelcome, {}, {}, {}}),
                              [&](std::unique_ptr<Connection> connection) {
                                acceptor_.on_connected(pending.token, std::move(connection));
                              });
}

}  // namespace pmstore::fabric::internal
