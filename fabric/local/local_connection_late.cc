// The local provider with late effects (fabric/local/late_effects.h): posting and completing.
#include <algorithm>

#include "fabric/local/late_effects.h"
#include "fabric/local/local_connection.h"

namespace pmstore::fabric {

Status LocalConnection::post_late(const Batch& batch, Completion* completion) {
  device_.stir();
  if (broken_) return make_error(ErrorCode::kDisconnected, why_broken_.message);
  if (Status postable = check_postable(batch); !postable) return postable;
  const auto immediates = static_cast<uint32_t>(std::count_if(
      batch.begin(), batch.end(),
      [](const WorkRequest& request) { return request.op == OpCode::kWriteImmediate; }));
  if (!late_->has_room(batch.size(), immediates)) return make_error(ErrorCode::kBackPressure);
  ++counters_.doorbells;
  counters_.work_requests += batch.size();
  uint64_t last = 0;
  for (const WorkRequest& request : batch) {
    const FaultDecision decision = decide(request);
    if (decision.fault == Fault::kDelay) inject(decision);
    last = late_->post(request, decision);
    (request.op == OpCode::kRead ? counters_.bytes_read : counters_.bytes_written) +=
        is_atomic(request.op) ? 0 : request.bytes;
  }
  if (completion == nullptr) return {};
  completion->arm();
  const uint64_t limit_ns = device_.executor().now_ns() + operation_timeout_ns_;
  const bool late = delay_until_ns_ > limit_ns;
  delayed_.push_back({completion, late ? limit_ns : delay_until_ns_, late, last});
  return {};
}

bool LocalConnection::may_tell(const Delayed& delayed) const {
  if (device_.executor().now_ns() < delayed.due_ns) return false;
  return late_ == nullptr || delayed.late ||
         (late_->acknowledged(delayed.operation) && late_->tells_now());
}

bool LocalConnection::stir() {
  const LateFlight::Outcome outcome = late_->turn(device_.executor().now_ns());
  if (outcome == LateFlight::Outcome::kViolation) {
    violation_ = late_->fault();
    violating_op_ = late_->refused_op();
    break_after(Outcome::kViolation);
  } else if (outcome == LateFlight::Outcome::kBroken) {
    break_after(Outcome::kBroken);
  }
  return outcome != LateFlight::Outcome::kNothing;
}

size_t LocalConnection::late_turn() {
  size_t handled = stir() ? 1 : 0;
  if (!broken_) deliver_delayed(handled);
  return handled;
}

uint64_t LocalConnection::next_event_ns() const {
  const uint64_t effect_ns = late_->next_event_ns();
  if (broken_ || delayed_.empty()) return effect_ns;
  const Delayed& first = delayed_.front();
  const bool tells = first.late || late_->acknowledged(first.operation);
  return tells ? std::min(effect_ns, first.due_ns) : effect_ns;
}

// Of the destructor. The peer may be opening at this moment: it then sees `gone` before it does
// anything.
void LocalConnection::leave_late() {
  mine_.gone.store(true, std::memory_order_seq_cst);
  if (peer_.state.load(std::memory_order_seq_cst) != EndpointState::kUnborn &&
      peer_.late != nullptr) {
    peer_.late->fence();
    device_.remove_incoming(peer_.late.get());
  }
  if (late_ == nullptr) return;
  late_->abandon();
  device_.remove_late(*this);
}

}  // namespace pmstore::fabric
