// LocalConnection: one end of a channel between two devices of this process. Threads, lifetimes and
// order: fabric/local/local_device.h.
#pragma once

#include <deque>
#include <memory>

#include "fabric/connection.h"
#include "fabric/local/channel.h"
#include "fabric/local/fault_injection.h"
#include "fabric/local/local_device.h"

namespace pmstore::fabric {

class LocalConnection final : public Connection {
 public:
  // `mine` and `peer` are ends of `channel`; the same one for a loopback. Opens `mine`.
  LocalConnection(LocalDevice& device, std::shared_ptr<Channel> channel, Endpoint& mine,
                  Endpoint& peer, uint64_t operation_timeout_ns);
  ~LocalConnection() override;

  Status post(const Batch& batch, Completion* completion) override;
  Arrivals arrivals() const override;

  // Called once, when the peer is open and its device known.
  void meet_peer();
  void set_peer_hello(std::vector<std::byte> hello) { peer_hello_ = std::move(hello); }
  // With late effects: posted operations may take effect; nothing is delivered.
  bool stir();
  // As stir(), and completions may be delivered. Result as of deliver().
  size_t late_turn();
  // The latest time for the next late_turn().
  uint64_t next_event_ns() const;
  // Delivers immediates, delayed completions and the disconnection. Returns their number; the
  // connection may be destroyed afterwards.
  size_t deliver();

  // ---- for the modelled machine (model/connection.h), which decides when requests take effect
  // ---- ModelConnection does not use post(). take_effect() runs one request, without doorbell,
  // completion or check of its local operands; an immediate is not delivered. Both ends are on one
  // thread.
  bool reaches_peer() const {
    return !broken_ && peer_.state.load(std::memory_order_relaxed) == EndpointState::kOpen;
  }
  // The fault with which the peer would refuse `request` now. Requires reaches_peer().
  AccessFault fault_of(const WorkRequest& request) const;
  // Runs `request`, after a call of `about_to()`. False: the connection was or is now broken.
  template <typename AboutTo>
  bool take_effect(const WorkRequest& request, AboutTo about_to) {
    if (!reaches_peer()) return false;
    const FaultDecision decision = decide(request);
    Outcome outcome = Outcome::kBroken;
    if (decision.fault != Fault::kBreakBefore) [[likely]] {
      about_to();
      outcome = execute_as_decided(request, decision);
    }
    if (outcome == Outcome::kDone) [[likely]]
      return true;
    break_after(outcome);
    return false;
  }
  // Breaks the connection as a request with this fault would.
  void refuse(OpCode op, AccessFault fault);
  void fail(Error why) { break_with(std::move(why), AccessFault::kNone); }
  bool is_connector() const { return &mine_ == &channel_->connector; }
  bool loops_back() const { return &mine_ == &peer_; }
  const LocalDevice* peer_device() const { return peer_.device; }
  const Channel* channel() const { return channel_.get(); }
  uint64_t operation_timeout_ns() const { return operation_timeout_ns_; }

 private:
  // A completion that a fault or a late effect holds back.
  struct Delayed {
    Completion* completion;
    uint64_t due_ns;
    bool late;               // past the operation timeout: breaks the connection when due
    uint64_t operation = 0;  // the last of its batch, where effects are late
  };
  enum class Outcome : uint8_t { kDone, kViolation, kBroken };

  bool enter() {
    if (mine_.same_thread) {
      return peer_.state.load(std::memory_order_relaxed) == EndpointState::kOpen;
    }
    mine_.in_flight.store(true, std::memory_order_seq_cst);
    return peer_.state.load(std::memory_order_seq_cst) == EndpointState::kOpen;
  }
  void leave() {
    if (!mine_.same_thread) mine_.in_flight.store(false, std::memory_order_release);
  }
  // Inside enter() and leave().
  void schedule_peer() {
    if (mine_.same_thread) {
      peer_.device->schedule_own(peer_);
    } else {
      peer_.device->schedule(peer_);
    }
  }

  // Local operands are the poster's own bug; what cannot be posted gives an error.
  Status check_postable(const Batch& batch) const;
  Status post_late(const Batch& batch, Completion* completion);
  bool may_tell(const Delayed& delayed) const;
  void leave_late();
  Outcome run(const Batch& batch);
  Outcome run_one(const WorkRequest& request);
  FaultDecision decide(const WorkRequest& request) const;
  Outcome execute_as_decided(const WorkRequest& request, const FaultDecision& decision);
  AccessFault execute(const WorkRequest& request);
  void break_after(Outcome outcome);
  void inject(const FaultDecision& decision);
  void complete(Completion* completion, bool ok);

  // Breaks this end: closes it, tells the peer, and has on_disconnect() delivered by the next poll.
  void break_with(Error why, AccessFault fault);
  void close_endpoint(AccessFault fault);
  void notice_peer_closed();
  Error peer_closed_error() const;
  // Both return false when this was destroyed by what they called.
  bool deliver_immediates(size_t& handled);
  uint32_t tell_of_waiting();
  bool deliver_delayed(size_t& handled);

  LocalDevice& device_;
  std::shared_ptr<Channel> channel_;
  Endpoint& mine_;
  Endpoint& peer_;
  const uint64_t operation_timeout_ns_;
  AccessFault violation_ = AccessFault::kNone;
  OpCode violating_op_ = OpCode::kRead;
  bool disconnect_told_ = false;
  LateFlight* late_ = nullptr;   // mine_.late
  std::deque<Delayed> delayed_;  // empty unless a fault was injected or effects are late
  uint64_t delay_until_ns_ = 0;
  bool* destroyed_ = nullptr;  // set true by the destructor, for the delivery loop that is running
};

}  // namespace pmstore::fabric
