#include "fabric/internal/polled_connection.h"

#include "base/check.h"
#include "fabric/internal/handshake.h"
#include "fabric/internal/polled_device.h"

namespace pmstore::fabric::internal {

PolledConnection::PolledConnection(PolledDevice& device)
    : Connection(device.executor()), device_(device) {
  capabilities_.atomics = AtomicScope::kNone;
  capabilities_.read_after_read = true;
  capabilities_.read_after_write = true;
  capabilities_.write_after_write = true;
  capabilities_.cpu_moves_data = true;
  device_.add(*this);
}

PolledConnection::~PolledConnection() { device_.remove(*this); }

[[gnu::hot]] Status PolledConnection::check(const Batch& batch) {
  if (batch.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "an empty batch would never complete");
  }
  for (const WorkRequest& request : batch) {
    if (!is_write(request) && request.op != OpCode::kRead) [[unlikely]] {
      return make_error(ErrorCode::kUnsupported,
                        "tcp and shm have no remote atomics and no FLUSH; see Capabilities");
    }
    if (request.bytes == 0) {
      if (request.op == OpCode::kWriteImmediate) continue;
      return make_error(ErrorCode::kInvalidArgument, "a READ or WRITE of no bytes does nothing");
    }
    const std::span<std::byte> region = request.local_region->bytes();
    const size_t offset = static_cast<size_t>(request.local - region.data());
    if (request.local < region.data() || offset > region.size() ||
        request.bytes > region.size() - offset) [[unlikely]] {
      return make_error(ErrorCode::kInvalidArgument,
                        "a local buffer lies outside its registered region");
    }
  }
  return {};
}

void PolledConnection::receive_control(std::vector<std::byte> message) {
  // A refusal takes the place of what has not been read yet: it is the answer.
  if (established_ || (inbox_ && !is_refusal(message))) {
    fail(make_error(ErrorCode::kProtocol, "the peer sent a control message out of turn"));
    return;
  }
  inbox_ = std::move(message);
  tell_handshake();
}

void PolledConnection::tick_soon() { device_.tick_soon(); }

[[gnu::hot]] void PolledConnection::attend() {
  if (!attention_.listed) device_.attend(*this);
}

void PolledConnection::tell_handshake() {
  tick_soon();
  if (watcher_ != nullptr) watcher_->on_handshake_news();
}

[[gnu::hot]] void PolledConnection::handle_immediate(uint32_t immediate) {
  ++counters_.immediates_received;
  if (established_) [[likely]] {
    if (receiver_ != nullptr) receiver_->on_immediate(immediate);
    return;
  }
  if (early_immediates_.size() == kMaxEarly) {
    fail(make_error(ErrorCode::kProtocol, "the peer floods the handshake with immediates"));
    return;
  }
  early_immediates_.push_back(immediate);
}

void PolledConnection::establish() {
  PMSTORE_CHECK(!established_, "a handshake ends once");
  established_ = true;
  const std::vector<uint32_t> early = std::exchange(early_immediates_, {});
  DestructionWatch watch(lifetime_);
  for (uint32_t immediate : early) {
    if (receiver_ != nullptr) receiver_->on_immediate(immediate);
    if (watch.destroyed() || broken_) return;
  }
}

void PolledConnection::fail(const Error& why) {
  if (closed()) return;
  failing_ = true;
  device_.count_event();
  const Error reason = why;  // may live in this connection
  // First, since the completions below give buffers back, which must not be touched any more.
  close_transport();
  why_broken_ = reason;
  broken_ = true;
  if (!established_) tell_handshake();
  DestructionWatch watch(lifetime_);
  while (Completion* completion = take_outstanding()) {
    completion->finish(false);
    if (watch.destroyed()) return;
  }
  failing_ = false;
  if (receiver_ != nullptr) receiver_->on_disconnect(reason);
}

}  // namespace pmstore::fabric::internal
