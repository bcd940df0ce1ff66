// The control path of FramedConnection: breaking, deadlines. The data path has its own file.
#include "fabric/internal/framed_connection.h"

#include <algorithm>

namespace pmstore::fabric::internal {

FramedConnection::FramedConnection(FramedDevice& device, bool dialed,
                                   const ConnectionOptions& options)
    : PolledConnection(device),
      dialed_(dialed),
      framed_(device),
      operation_timeout_ns_(options.operation_timeout_ns),
      expected_(kMaxUnanswered) {}

Status FramedConnection::link(const std::string&) {
  accepted_ = dialed_;
  return {};
}

Completion* FramedConnection::take_outstanding() {
  while (unanswered_ > 0) {
    Completion* const completion = expected(0).completion;
    expected_head_ = (expected_head_ + 1) % kMaxUnanswered;
    --unanswered_;
    if (completion != nullptr) return completion;
  }
  return nullptr;
}

void FramedConnection::withdraw(const MemoryRegion& region) {
  if (closed()) return;
  const bool arriving = forget_body(region);
  if (!arriving && !sender_->waits_for(region)) return;
  if (!sender_->abandon()) give_up_sending();
  post_error_ =
      make_error(ErrorCode::kAccess, "a region was withdrawn while the peer read or wrote it");
  attend();
  tick_soon();
}

bool FramedConnection::needs_attention() const {
  if (closed()) return false;
  return post_error_ || unanswered_ > 0 || !sender_->empty() || transport_needs_attention();
}

void FramedConnection::rest() {
  late_ = false;
  stuck_deadline_ns_ = 0;
}

void FramedConnection::start_deadlines(uint64_t now_ns) {
  for (uint32_t i = unanswered_; i > 0 && expected(i - 1).deadline_ns == 0; --i) {
    expected(i - 1).deadline_ns = now_ns + operation_timeout_ns_;
  }
}

uint64_t FramedConnection::next_deadline_ns(uint64_t now_ns) {
  uint64_t next_ns = base::Poller::kNoEvent;
  if (unanswered_ > 0) {
    start_deadlines(now_ns);
    next_ns = expected(0).deadline_ns;
  }
  watch_progress(now_ns);
  if (stuck_deadline_ns_ != 0) next_ns = std::min(next_ns, stuck_deadline_ns_);
  return next_ns;
}

void FramedConnection::watch_progress(uint64_t now_ns) {
  if (sender_->empty()) {
    stuck_deadline_ns_ = 0;
  } else if (stuck_deadline_ns_ == 0 || stuck_since_bytes_ != sent_bytes()) {
    stuck_deadline_ns_ = now_ns + operation_timeout_ns_;
  }
  stuck_since_bytes_ = sent_bytes();
}

std::optional<Error> FramedConnection::overdue(uint64_t now_ns) {
  start_deadlines(now_ns);
  watch_progress(now_ns);
  const bool late = (unanswered_ > 0 && expected(0).deadline_ns <= now_ns) ||
                    (stuck_deadline_ns_ != 0 && stuck_deadline_ns_ <= now_ns);
  // This process may have been stopped: what has arrived meanwhile is read before the next tick.
  if (!std::exchange(late_, late) || !late) return {};
  return make_error(ErrorCode::kTimeout, "the peer did not serve a batch within " +
                                             std::to_string(operation_timeout_ns_ / 1'000'000) +
                                             " ms; check that it runs and can be reached");
}

}  // namespace pmstore::fabric::internal
