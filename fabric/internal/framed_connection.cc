// The control path of FramedConnection: breaking, deadlines. The data path has its own file.
#include "fabric/internal/framed_connection.h"

#include <algorithm>

namespace pmstore::fabric::internal {

FramedConnection::FramedConnection(FramedDevice& device, bool dialed,
                                   const ConnectionOptions& options)
    : PolledConnection(device),
      dialed_(dialed),
      framed_(device),
      operation_timeout_ns_(options.operation_timeout_ns) {}

Status FramedConnection::link(const std::string&) {
  accepted_ = dialed_;
  return {};
}

Completion* FramedConnection::take_outstanding() {
  while (!expected_.empty()) {
    Completion* const completion = expected_[0].completion;
    expected_.pop_front();
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

[[gnu::hot]] bool FramedConnection::needs_attention() const {
  if (closed()) return false;
  return post_error_ || !expected_.empty() || !sender_->empty() || transport_needs_attention();
}

[[gnu::hot]] void FramedConnection::rest() {
  late_ = false;
  stuck_deadline_ns_ = 0;
}

[[gnu::hot]] bool FramedConnection::has_surplus() const {
  return !closed() &&
         (moved_bytes_ > kFewBytes || expected_.has_surplus() || sender_->has_surplus());
}

void FramedConnection::give_back() {
  PMSTORE_CHECK(!needs_attention(), "what is in use stays");
  if (closed()) return;
  moved_bytes_ = 0;
  expected_.give_back();
  sender_->give_back();
  if (receiver_ != nullptr) receiver_->on_idle();
}

void FramedConnection::start_deadlines(uint64_t now_ns) {
  for (uint32_t i = unanswered(); i > 0 && expected_[i - 1].deadline_ns == 0; --i) {
    expected_[i - 1].deadline_ns = now_ns + operation_timeout_ns_;
  }
}

[[gnu::hot]] uint64_t FramedConnection::next_deadline_ns(uint64_t now_ns) {
  uint64_t next_ns = base::Poller::kNoEvent;
  if (!expected_.empty()) {
    start_deadlines(now_ns);
    next_ns = expected_[0].deadline_ns;
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
  const bool late = (!expected_.empty() && expected_[0].deadline_ns <= now_ns) ||
                    (stuck_deadline_ns_ != 0 && stuck_deadline_ns_ <= now_ns);
  // This process may have been stopped: what has arrived meanwhile is read before the next tick.
  if (!std::exchange(late_, late) || !late) return {};
  return make_error(ErrorCode::kTimeout, "the peer did not serve a batch within " +
                                             std::to_string(operation_timeout_ns_ / 1'000'000) +
                                             " ms; check that it runs and can be reached");
}

}  // namespace pmstore::fabric::internal
