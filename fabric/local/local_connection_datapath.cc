// The data path of the local provider: executing work requests inline.
#include "base/atomic_copy.h"
#include "base/bulk_copy.h"
#include "base/check.h"
#include "fabric/local/local_connection.h"

namespace pmstore::fabric {

Status LocalConnection::check_postable(const Batch& batch) const {
  PMSTORE_CHECK(!batch.empty(), "an empty chain has no last request to complete");
  uint32_t immediates = 0;
  for (const WorkRequest& request : batch) {
    if (request.op == OpCode::kWriteImmediate) ++immediates;
    if (request.op == OpCode::kFlush) [[unlikely]] {
      return make_error(ErrorCode::kUnsupported,
                        "the local provider has no native FLUSH; use READ after WRITE");
    }
    if (request.bytes == 0) continue;
    const auto* region = static_cast<const LocalRegion*>(request.local_region);
    PMSTORE_CHECK(region != nullptr && region->device() == &device_,
                  "local buffers lie in memory that was registered with the connection's device");
    const std::span<std::byte> memory = region->bytes();
    PMSTORE_CHECK(
        request.local >= memory.data() && request.bytes <= memory.size() &&
            static_cast<size_t>(request.local - memory.data()) <= memory.size() - request.bytes,
        "a local buffer lies inside its region");
  }
  if (immediates > 0 && peer_.room() < immediates) return make_error(ErrorCode::kBackPressure);
  return {};
}

AccessFault LocalConnection::execute(const WorkRequest& request) {
  std::byte* target = nullptr;
  if (request.bytes > 0) {  // as on an RNIC, nothing is checked when nothing moves
    const RegionTable::Found found = peer_.device->regions().find(
        request.remote_key, request.remote_address, request.bytes, right_for(request.op));
    if (found.fault != AccessFault::kNone) [[unlikely]]
      return found.fault;
    target = found.data;
  }
  if (is_atomic(request.op)) {
    if (!base::aligned8(target)) [[unlikely]]
      return AccessFault::kMisaligned;
    const uint64_t old = internal::execute_atomic(request, target);
    std::memcpy(request.local, &old, sizeof(old));
    return AccessFault::kNone;
  }
  if (request.op == OpCode::kRead) {
    base::copy_bulk_from_shared(request.local, target, request.bytes);
    counters_.bytes_read += request.bytes;
    return AccessFault::kNone;
  }
  base::copy_bulk_to_shared(target, request.local, request.bytes);
  counters_.bytes_written += request.bytes;
  if (request.op == OpCode::kWriteImmediate) {
    peer_.push(request.immediate);
    schedule_peer();
  }
  return AccessFault::kNone;
}

FaultDecision LocalConnection::decide(const WorkRequest& request) const {
  return internal::fault_of({&device_.executor(), &mine_ == &channel_->connector, request});
}

LocalConnection::Outcome LocalConnection::run_one(const WorkRequest& request) {
  const FaultDecision decision = decide(request);
  if (decision.fault == Fault::kBreakBefore) [[unlikely]]
    return Outcome::kBroken;
  return execute_as_decided(request, decision);
}

LocalConnection::Outcome LocalConnection::execute_as_decided(const WorkRequest& request,
                                                             const FaultDecision& decision) {
  if (decision.fault == Fault::kDelay) [[unlikely]]
    inject(decision);
  violation_ = execute(request);
  if (violation_ != AccessFault::kNone) [[unlikely]] {
    violating_op_ = request.op;
    return Outcome::kViolation;
  }
  if (decision.fault == Fault::kBreakAfter) [[unlikely]]
    return Outcome::kBroken;
  return Outcome::kDone;
}

LocalConnection::Outcome LocalConnection::run(const Batch& batch) {
  for (const WorkRequest& request : batch) {
    const Outcome outcome = run_one(request);
    if (outcome != Outcome::kDone) [[unlikely]]
      return outcome;
  }
  return Outcome::kDone;
}

void LocalConnection::break_after(Outcome outcome) {
  if (outcome == Outcome::kViolation) {
    break_with(make_error(ErrorCode::kAccess), violation_);
  } else {
    break_with(make_error(ErrorCode::kDisconnected, "an injected fault broke the connection"),
               AccessFault::kNone);
  }
}

AccessFault LocalConnection::fault_of(const WorkRequest& request) const {
  if (request.bytes == 0) return AccessFault::kNone;
  const RegionTable::Found found = peer_.device->regions().find(
      request.remote_key, request.remote_address, request.bytes, right_for(request.op));
  if (found.fault != AccessFault::kNone) return found.fault;
  const bool misaligned = is_atomic(request.op) && !base::aligned8(found.data);
  return misaligned ? AccessFault::kMisaligned : AccessFault::kNone;
}

void LocalConnection::refuse(OpCode op, AccessFault fault) {
  violating_op_ = op;
  break_with(make_error(ErrorCode::kAccess), fault);
}

Status LocalConnection::post(const Batch& batch, Completion* completion) {
  if (late_ != nullptr) [[unlikely]]
    return post_late(batch, completion);
  if (broken_) [[unlikely]]
    return make_error(ErrorCode::kDisconnected, why_broken_.message);
  if (!enter()) [[unlikely]] {
    leave();
    notice_peer_closed();
    return make_error(ErrorCode::kDisconnected, why_broken_.message);
  }
  if (Status postable = check_postable(batch); !postable) [[unlikely]] {
    leave();
    return postable;
  }
  ++counters_.doorbells;
  counters_.work_requests += batch.size();
  if (completion != nullptr) completion->arm();
  const Outcome outcome = run(batch);
  leave();
  if (outcome == Outcome::kDone) [[likely]] {
    if (completion != nullptr) complete(completion, true);
    return {};
  }
  break_after(outcome);
  if (completion != nullptr) complete(completion, false);
  return {};
}

void LocalConnection::complete(Completion* completion, bool ok) {
  if (delay_until_ns_ != 0 || !delayed_.empty()) [[unlikely]] {
    const uint64_t now = device_.executor().now_ns();
    const uint64_t limit = now + operation_timeout_ns_;
    if (broken_) {  // deliver() gives this one, too, the connection's error
      delayed_.push_back({completion, now, true});
      return;
    }
    if (now < delay_until_ns_ || !delayed_.empty()) {
      const bool late = delay_until_ns_ > limit;
      delayed_.push_back({completion, late ? limit : delay_until_ns_, late});
      device_.schedule_own(mine_);
      return;
    }
    delay_until_ns_ = 0;
  }
  ++counters_.completions;
  completion->finish(ok);
}

}  // namespace pmstore::fabric
