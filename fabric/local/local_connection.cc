#include "fabric/local/local_connection.h"

#include <sched.h>

#include <algorithm>
#include <string>

#include "base/check.h"
#include "fabric/local/late_effects.h"

namespace pmstore::fabric {

namespace {

std::string_view op_name(OpCode op) {
  switch (op) {
    case OpCode::kWrite: return "WRITE";
    case OpCode::kWriteImmediate: return "WRITE with immediate";
    case OpCode::kRead: return "READ";
    case OpCode::kCompareSwap: return "compare-swap";
    case OpCode::kFetchAdd: return "fetch-add";
    case OpCode::kFlush: return "FLUSH";
  }
  return "?";
}

std::string_view fault_text(AccessFault fault) {
  switch (fault) {
    case AccessFault::kNone: return "no fault";
    case AccessFault::kUnknownKey: return "no region has that key";
    case AccessFault::kOutOfBounds: return "it leaves the region";
    case AccessFault::kNotGranted: return "the region does not grant it";
    case AccessFault::kMisaligned: return "the address is not a multiple of 8";
  }
  return "?";
}

// Keeps virtual time going until a delayed completion is due.
base::Task<void> let_time_pass(base::Executor& executor, uint64_t until_ns) {
  co_await executor.sleep_until(until_ns);
}

}  // namespace

LocalConnection::LocalConnection(LocalDevice& device, std::shared_ptr<Channel> channel,
                                 Endpoint& mine, Endpoint& peer, uint64_t operation_timeout_ns)
    : Connection(device.executor()),
      device_(device),
      channel_(std::move(channel)),
      mine_(mine),
      peer_(peer),
      operation_timeout_ns_(operation_timeout_ns) {
  capabilities_.atomics = AtomicScope::kGlobal;
  capabilities_.poster_moves_data = true;
  capabilities_.read_after_read = true;
  capabilities_.read_after_write = true;
  capabilities_.write_after_write = true;
  capabilities_.atomic_after_write = true;
  mine_.device = &device_;
  mine_.executor = &device_.executor();
  mine_.connection = this;
  device_.count_connection(+1);
  if (const auto seed = device_.next_late_seed()) {
    mine_.late = std::make_shared<LateFlight>(capabilities_, peer_, *seed);
    late_ = mine_.late.get();
  }
  mine_.state.store(EndpointState::kOpen, std::memory_order_seq_cst);
  // A peer that closed before this end was open could not tell it.
  if (peer_.state.load(std::memory_order_seq_cst) == EndpointState::kClosed) {
    device_.schedule_own(mine_);
  }
}

void LocalConnection::meet_peer() {
  // Even of a peer that has closed since, the pointer is only compared.
  mine_.same_thread = peer_.executor == &device_.executor();
  if (late_ != nullptr) device_.add_late(*this);
  if (peer_.late != nullptr) device_.add_incoming(channel_, peer_.late.get());
}

LocalConnection::~LocalConnection() {
  close_endpoint(AccessFault::kNone);
  leave_late();
  // The fence: the peer's requests are bounded, and it starts no other once it has seen kClosed.
  while (peer_.in_flight.load(std::memory_order_seq_cst)) sched_yield();
  device_.unschedule(mine_);
  mine_.connection = nullptr;
  device_.count_connection(-1);
  if (destroyed_ != nullptr) *destroyed_ = true;
}

// A WRITE is in memory before its immediate is in the inbox. Nothing is between the two while the
// peer, on this thread, does not post; late effects are.
Arrivals LocalConnection::arrivals() const {
  if (!mine_.empty()) return Arrivals::kSome;
  const bool effects_are_late = late_ != nullptr || peer_.late != nullptr;
  return mine_.same_thread && !effects_are_late ? Arrivals::kNone : Arrivals::kUnknown;
}

void LocalConnection::close_endpoint(AccessFault fault) {
  if (mine_.state.load(std::memory_order_relaxed) == EndpointState::kClosed) return;
  mine_.access_fault.store(static_cast<uint8_t>(fault), std::memory_order_relaxed);
  mine_.state.store(EndpointState::kClosed, std::memory_order_seq_cst);
  if (enter()) schedule_peer();
  leave();
}

void LocalConnection::break_with(Error why, AccessFault fault) {
  if (broken_) return;
  broken_ = true;
  why_broken_ = std::move(why);
  if (late_ != nullptr) late_->stop();
  if (fault != AccessFault::kNone) {
    why_broken_.message = "the peer refused a " + std::string(op_name(violating_op_)) + ": " +
                          std::string(fault_text(fault));
  }
  close_endpoint(fault);
  device_.schedule_own(mine_);  // on_disconnect() comes from polling
}

Error LocalConnection::peer_closed_error() const {
  const auto fault = static_cast<AccessFault>(peer_.access_fault.load(std::memory_order_relaxed));
  if (fault == AccessFault::kNone) {
    return make_error(ErrorCode::kDisconnected, "the peer closed the connection");
  }
  return make_error(ErrorCode::kDisconnected,
                    "the peer broke the connection by an access that was refused: " +
                        std::string(fault_text(fault)));
}

void LocalConnection::notice_peer_closed() { break_with(peer_closed_error(), AccessFault::kNone); }

void LocalConnection::inject(const FaultDecision& decision) {
  base::Executor& executor = device_.executor();
  delay_until_ns_ = std::max(delay_until_ns_, executor.now_ns() + decision.delay_ns);
  executor.spawn(let_time_pass(
      executor, executor.now_ns() + std::min(decision.delay_ns, operation_timeout_ns_)));
}

// Gives how many immediates need no further look.
uint32_t LocalConnection::tell_of_waiting() {
  const uint32_t waiting = std::min<uint32_t>(mine_.size(), kToldTogether);
  for (uint32_t i = 0; waiting > 1 && i < waiting; ++i) {
    receiver_->on_waiting(mine_.peek(i), {});
  }
  return waiting;
}

bool LocalConnection::deliver_immediates(size_t& handled) {
  uint32_t told = 0;
  // Only what is there now, so that a fast peer cannot keep the poller here.
  for (uint32_t left = Endpoint::kInboxSlots; left > 0; --left) {
    if (receiver_ == nullptr || mine_.empty()) return true;
    if (told == 0) told = tell_of_waiting();
    --told;
    const uint32_t immediate = mine_.pop();
    ++counters_.immediates_received;
    ++handled;
    bool destroyed = false;
    bool* outer = std::exchange(destroyed_, &destroyed);
    receiver_->on_immediate(immediate);
    if (destroyed) {
      if (outer != nullptr) *outer = true;
      return false;
    }
    destroyed_ = outer;
  }
  return true;
}

bool LocalConnection::deliver_delayed(size_t& handled) {
  while (!delayed_.empty()) {
    const Delayed first = delayed_.front();
    if (!broken_ && !may_tell(first)) return true;
    if (!broken_ && first.late) {
      break_with(make_error(ErrorCode::kTimeout, "an operation did not complete in time"),
                 AccessFault::kNone);
    }
    delayed_.pop_front();
    ++counters_.completions;
    ++handled;
    bool destroyed = false;
    bool* outer = std::exchange(destroyed_, &destroyed);
    first.completion->finish(!broken_);
    if (destroyed) {
      if (outer != nullptr) *outer = true;
      return false;
    }
    destroyed_ = outer;
  }
  return true;
}

size_t LocalConnection::deliver() {
  size_t handled = 0;
  // Before the inbox: what the peer pushed before it closed is delivered first.
  const bool peer_closed =
      &peer_ != &mine_ && peer_.state.load(std::memory_order_seq_cst) == EndpointState::kClosed;
  if (!deliver_immediates(handled)) return handled;
  if (peer_closed && !broken_) notice_peer_closed();
  const bool tells = late_ == nullptr || broken_;  // otherwise late_turn() does
  if (tells && !deliver_delayed(handled)) return handled;
  if (broken_ && !disconnect_told_ && receiver_ != nullptr && mine_.empty()) {
    disconnect_told_ = true;
    receiver_->on_disconnect(Error(why_broken_));
    return handled + 1;
  }
  if (!mine_.empty() || (tells && !delayed_.empty()) || (broken_ && !disconnect_told_))
    device_.schedule_own(mine_);
  return handled;
}

}  // namespace pmstore::fabric
