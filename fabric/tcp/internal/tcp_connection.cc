// The control path of TcpConnection: opening, breaking, deadlines. The data path has its own file.
#include "fabric/tcp/internal/tcp_connection.h"

#include <algorithm>

#include "fabric/tcp/internal/tcp_device.h"

namespace pmstore::fabric::tcp {

namespace {

// How soon a blocked executor asks again whether a socket has connected.
constexpr uint64_t kConnectingTickNs = 1'000'000;

}  // namespace

TcpConnection::TcpConnection(TcpDevice& device, Multiplexer& multiplexer,
                             const internal::ConnectionOptions& options)
    : PolledConnection(device),
      tcp_(device),
      multiplexer_(&multiplexer),
      dialed_(true),
      channel_(multiplexer.add(*this)),
      operation_timeout_ns_(options.operation_timeout_ns),
      sender_(std::make_unique<FrameSender>(channel_)),
      expected_(kMaxUnanswered) {}

TcpConnection::TcpConnection(TcpDevice& device, Multiplexer& multiplexer, uint32_t channel,
                             const internal::ConnectionOptions& options)
    : PolledConnection(device),
      tcp_(device),
      multiplexer_(&multiplexer),
      dialed_(false),
      channel_(channel),
      operation_timeout_ns_(options.operation_timeout_ns),
      sender_(std::make_unique<FrameSender>(channel_)),
      expected_(kMaxUnanswered) {}

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

Completion* TcpConnection::take_outstanding() {
  while (unanswered_ > 0) {
    Completion* const completion = expected(0).completion;
    expected_head_ = (expected_head_ + 1) % kMaxUnanswered;
    --unanswered_;
    if (completion != nullptr) return completion;
  }
  return nullptr;
}

// Of the end that dialed: the listener may send as soon as it has accepted.
Status TcpConnection::link(const std::string&) {
  accepted_ = dialed_;
  return {};
}

Status TcpConnection::send_control(std::vector<std::byte> message) {
  if (broken()) return why_broken_;
  sender_->push_handshake(std::move(message));
  multiplexer_->mark_ready(*sender_);
  return {};
}

void TcpConnection::take_handshake(std::vector<std::byte> message) {
  heard_ = true;
  receive_control(std::move(message));
}

void TcpConnection::withdraw(const MemoryRegion& region, bool arriving) {
  if (!arriving && !sender_->waits_for(region)) return;
  if (!sender_->abandon()) multiplexer_->hang_up();
  post_error_ =
      make_error(ErrorCode::kAccess, "a region was withdrawn while the peer read or wrote it");
  tick_soon();
}

void TcpConnection::start_deadlines(uint64_t now_ns) {
  for (uint32_t i = unanswered_; i > 0 && expected(i - 1).deadline_ns == 0; --i) {
    expected(i - 1).deadline_ns = now_ns + operation_timeout_ns_;
  }
}

uint64_t TcpConnection::next_tick_ns(uint64_t now_ns) {
  if (closed()) return base::Poller::kNoEvent;
  if (!multiplexer_->connected()) return now_ns + kConnectingTickNs;
  uint64_t next_ns = base::Poller::kNoEvent;
  if (unanswered_ > 0) {
    start_deadlines(now_ns);
    next_ns = expected(0).deadline_ns;
  }
  if (!sender_->empty()) {
    next_ns = std::min(
        next_ns, stuck_deadline_ns_ != 0 ? stuck_deadline_ns_ : now_ns + operation_timeout_ns_);
  }
  return next_ns;
}

void TcpConnection::tick(uint64_t now_ns) {
  if (closed()) return;
  if (!multiplexer_->connected()) return multiplexer_->continue_connecting();
  if (post_error_) return fail(*post_error_);
  start_deadlines(now_ns);
  if (std::optional<Error> why = overdue(now_ns)) {
    multiplexer_->retire();
    fail(*why);
  }
}

std::optional<Error> TcpConnection::overdue(uint64_t now_ns) {
  bool late = unanswered_ > 0 && expected(0).deadline_ns <= now_ns;
  if (sender_->empty()) {
    stuck_deadline_ns_ = 0;
  } else if (stuck_deadline_ns_ == 0 || stuck_since_bytes_ != multiplexer_->sent_bytes()) {
    stuck_deadline_ns_ = now_ns + operation_timeout_ns_;
  } else {
    late |= stuck_deadline_ns_ <= now_ns;
  }
  stuck_since_bytes_ = multiplexer_->sent_bytes();
  if (!late) return {};
  return make_error(ErrorCode::kTimeout, "the peer did not serve a batch within " +
                                             std::to_string(operation_timeout_ns_ / 1'000'000) +
                                             " ms; check that it runs and can be reached");
}

}  // namespace pmstore::fabric::tcp
