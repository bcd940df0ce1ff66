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
  while (!pending_.empty()) abandon(*pending_.begin()->second);
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
  for (size_t taken = 0; clients_wait_; ++taken) {
    if (taken == kMostAccepted) return device_.tick_soon();
    const Accepted accepted = accept_next();
    clients_wait_ = accepted == Accepted::kClient;
    if (accepted != Accepted::kNotNow) continue;
    // The socket stays readable: watched, it would keep the executor from blocking.
    device_.executor().change_watch(fd_, 0, *this);
    retry_at_ns_ = now_ns + kRetryNs;
  }
}

void HandshakeListener::take(std::unique_ptr<PolledConnection> connection, const Origin& origin) {
  const uint64_t now_ns = device_.executor().now_ns();
  device_.handshake_started();
  auto pending = std::make_unique<Pending>(*this, std::move(connection), next_token_++);
  pending->connection->watch_handshake(pending.get());
  Newcomer* const surplus = newcomers_.surplus(origin, now_ns);
  newcomers_.add(*pending, origin, now_ns);
  pending_.emplace(pending->token, std::move(pending));
  device_.tick_soon();
  if (surplus != nullptr) turn_away(static_cast<Pending&>(*surplus));
}

void HandshakeListener::look_at(Pending& pending) {
  if (!pending.in_news.listed) news_.push_back(pending);
  device_.tick_soon();
}

void HandshakeListener::tick(uint64_t now_ns) {
  accept_new(now_ns);
  after_accepting();
  for (size_t handled = 0; handled < kMostHandled && !news_.empty(); ++handled) {
    advance(news_.pop_front());
  }
  if (!news_.empty()) device_.tick_soon();
  end_overdue(now_ns);
}

void HandshakeListener::end_overdue(uint64_t now_ns) {
  for (Newcomer* oldest = newcomers_.oldest(); oldest != nullptr;) {
    if (now_ns < oldest->since_ns + kTimeoutNs) break;
    abandon(static_cast<Pending&>(*oldest));
    oldest = newcomers_.oldest();
  }
  while (!refused_.empty() && now_ns >= refused_.front()->refused_until_ns) {
    abandon(*refused_.front());
  }
}

std::unique_ptr<HandshakeListener::Pending> HandshakeListener::take_off(Pending& pending) {
  if (pending.in_news.listed) news_.remove(pending);
  if (pending.in_refused.listed) refused_.remove(pending);
  if (Newcomers::listed(pending)) newcomers_.remove(pending);
  pending.connection->watch_handshake(nullptr);
  device_.handshake_ended();
  const auto found = pending_.find(pending.token);
  PMSTORE_CHECK(found != pending_.end(), "a handshake ends once");
  std::unique_ptr<Pending> ended = std::move(found->second);
  pending_.erase(found);
  return ended;
}

void HandshakeListener::abandon(Pending& pending) {
  const std::unique_ptr<Pending> ended = take_off(pending);
  if (ended->stage == Stage::kAwaitReady) acceptor_.on_abandoned(ended->token);
}

void HandshakeListener::turn_away(Pending& pending) {
  const Error why = make_error(ErrorCode::kBackPressure,
                               uri_.to_string() +
                                   " has too many handshakes under way, most of them from this "
                                   "address; try again");
  // Best effort: a peer that is gone already does not need it.
  static_cast<void>(pending.connection->send_control(encode_refusal(why)));
  abandon(pending);
}

uint64_t HandshakeListener::next_tick_ns(uint64_t) const {
  PMSTORE_CHECK(retry_at_ns_ == 0 || !clients_wait_, "a client that waits is tried later");
  uint64_t next_ns = retry_at_ns_ == 0 ? base::Poller::kNoEvent : retry_at_ns_;
  if (const Newcomer* const oldest = newcomers_.oldest()) {
    next_ns = std::min(next_ns, oldest->since_ns + kTimeoutNs);
  }
  if (!refused_.empty()) next_ns = std::min(next_ns, refused_.front()->refused_until_ns);
  return next_ns;
}

void HandshakeListener::advance(Pending& pending) {
  PolledConnection& connection = *pending.connection;
  if (const auto message = connection.take_control()) {
    if (pending.stage == Stage::kAwaitHello) {
      if (Status answered = answer_hello(pending, *message); !answered) {
        return refuse(pending, answered.error());
      }
    } else if (pending.stage == Stage::kAwaitReady) {
      const Result<HandshakeMessage> ready = decode(*message);
      if (ready && ready->kind == MessageKind::kReady && !connection.broken()) {
        return complete(take_off(pending));
      }
      return abandon(pending);
    }
  }
  if (connection.broken()) abandon(pending);
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
  if (!sent) {
    acceptor_.on_abandoned(pending.token);
    return sent;
  }
  // Its time starts again: many hellos may have been answered before it.
  const Origin origin = pending.origin;
  newcomers_.remove(pending);
  newcomers_.add(pending, origin, device_.executor().now_ns());
  return {};
}

void HandshakeListener::refuse(Pending& pending, const Error& why) {
  pending.stage = Stage::kRefused;
  newcomers_.remove(pending);
  pending.refused_until_ns = device_.executor().now_ns() + kRefusalNs;
  refused_.push_back(pending);
  if (refused_.size() > kMostRefused) abandon(*refused_.front());
  // Best effort: a peer that is gone already does not need it.
  if (Status sent = pending.connection->send_control(encode_refusal(why)); !sent) abandon(pending);
}

void HandshakeListener::complete(std::unique_ptr<Pending> pending) {
  pending->connection->peer_has_linked();
  PolledConnection::give_away(std::move(pending->connection),
                              encode({MessageKind::kWelcome, {}, {}, {}}),
                              [&](std::unique_ptr<Connection> connection) {
                                acceptor_.on_connected(pending->token, std::move(connection));
                              });
}

}  // namespace pmstore::fabric::internal
