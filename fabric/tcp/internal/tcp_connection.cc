#include "fabric/tcp/internal/tcp_connection.h"

#include "fabric/tcp/internal/tcp_device.h"

namespace pmstore::fabric::tcp {

namespace {

// How soon a blocked executor asks again whether a socket has connected.
constexpr uint64_t kConnectingTickNs = 1'000'000;

}  // namespace

TcpConnection::TcpConnection(TcpDevice& device, Multiplexer& multiplexer,
                             const internal::ConnectionOptions& options)
    : FramedConnection(device, true, options),
      multiplexer_(&multiplexer),
      channel_(multiplexer.add(*this)) {
  sender_ = std::make_unique<FrameSender>(channel_);
}

TcpConnection::TcpConnection(TcpDevice& device, Multiplexer& multiplexer, uint32_t channel,
                             const internal::ConnectionOptions& options)
    : FramedConnection(device, false, options), multiplexer_(&multiplexer), channel_(channel) {
  sender_ = std::make_unique<FrameSender>(channel_);
}

TcpConnection::~TcpConnection() {
  if (multiplexer_ == nullptr) return;
  // No answer at all, in time: others should not wait for that peer on this multiplexer.
  if (dialed_ && !heard_) multiplexer_->retire();
  // Sends as much of the earlier posts as the socket takes now.
  multiplexer_->flush();
  close_transport();
}

void TcpConnection::close_transport() {
  if (Multiplexer* const multiplexer = std::exchange(multiplexer_, nullptr)) {
    multiplexer->remove(channel_, std::move(sender_), last_, !peer_closed_);
  }
}

Status TcpConnection::send_control(std::vector<std::byte> message) {
  if (broken()) return why_broken_;
  sender_->push_handshake(std::move(message));
  frames_wait();
  return {};
}

void TcpConnection::take_handshake(std::vector<std::byte> message) {
  heard_ = true;
  receive_control(std::move(message));
}

[[gnu::hot]] uint64_t TcpConnection::next_tick_ns(uint64_t now_ns) {
  if (closed()) return base::Poller::kNoEvent;
  if (!multiplexer_->connected()) return now_ns + kConnectingTickNs;
  return next_deadline_ns(now_ns);
}

[[gnu::hot]] void TcpConnection::tick(uint64_t now_ns) {
  if (closed()) return;
  if (!multiplexer_->connected()) return multiplexer_->continue_connecting();
  if (post_error_) return fail(*post_error_);
  if (std::optional<Error> why = overdue(now_ns)) {
    multiplexer_->retire();
    fail(*why);
  }
}

}  // namespace pmstore::fabric::tcp
