// VerbsConnection: an RC queue pair. See fabric/connection.h for the contract.
//
// Invariants (positions count work requests or signaled posts since the start, and only grow):
//   send_used_ = posted_ - reclaimed_ <= kSendRequests + one probe
//   slot_head_ <= slot_tail_ <= slot_head_ + kSlots; one slot per signaled post, oldest first;
//     RC completes in order, so a successful completion always belongs to slot_head_.
//   unsignaled_ < kSignalEvery: work requests behind the last signaled one.
//   receives_owed_ + early_.size() + (receives in the queue) = kReceives
//   broken_ implies the queue pair is in the error state, and no slot is left unless break_owed_.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "fabric/connection.h"
#include "fabric/verbs/internal/cm_events.h"
#include "fabric/verbs/internal/handles.h"

namespace pmstore::fabric::verbs {

class VerbsDevice;
class Handshake;

// Names a connection in work-request ids; never reused while an old completion may be around.
struct ConnectionRef {
  uint32_t index = 0;
  uint32_t generation = 0;
};

class VerbsConnection final : public Connection, public CmTarget {
 public:
  static constexpr uint32_t kSendRequests = 511;  // + 1 kept for the probe = kSlots
  static constexpr uint32_t kSlots = 512;
  static constexpr uint32_t kReceives =
      512;  // twice the calls that an RPC connection has by default
  static constexpr uint32_t kReceiveChain = 64;  // posted with one doorbell
  // A post without Completion is signaled all the same when this many requests are behind the last
  // signal: the queue's entries come back only with a completion. At most a quarter of the queue.
  static constexpr uint32_t kSignalEvery = 128;
  // The requested size; the device may give less. Enough for a record or an RPC header in the WQE.
  static constexpr uint32_t kInlineBytes = 128;
  // Including the receive for the hello.
  static constexpr uint32_t kQueueEntries = kSlots + kReceives + 1;

  // A queue pair in the RESET state, known to `device`.
  static Result<std::unique_ptr<VerbsConnection>> create(VerbsDevice& device,
                                                         uint64_t operation_timeout_ns);
  ~VerbsConnection() override;

  Status post(const Batch& batch, Completion* completion) override;

  // ---- set-up, in this order (connection.cc) ----
  // RESET -> INIT, then the receives: the hello's first, if there is one.
  Status to_init(rdma_cm_id* id);
  Status post_receives(const ibv_sge* hello);
  // INIT -> RTR -> RTS.
  // `initiated`, `answered`: the READs and atomics under way in each direction.
  Status to_ready(rdma_cm_id* id, uint8_t initiated, uint8_t answered);
  // Replaces the three steps for a connection to this device itself.
  Status connect_to_self();
  // Sends the hello, before any other request; `completion` tells that it has arrived.
  Status send_hello(const ibv_sge& hello, Completion* completion);
  // Until opened(), `handshake` is told of failures and of the hello's reception.
  void set_handshake(Handshake* handshake) { handshake_ = handshake; }
  // `lender` owns the bytes of send_hello() until they are delivered. It is told if this connection
  // is destroyed first.
  void borrow_hello(Handshake* lender) { hello_lender_ = lender; }
  void opened(std::vector<std::byte> peer_hello);
  void own_id(CmIdHandle id, CmEvents::Key key);
  bool has(const ibv_qp* qp) const { return qp == qp_.get() || qp == self_qp_.get(); }
  uint32_t qp_number() const { return qp_->qp_num; }

  // ---- polling ----
  void on_cm_event(const CmEvent& event) override;
  // Any of these may destroy the connection before it returns.
  void on_completion(const ibv_wc& wc, bool receive, uint16_t slot);
  // An immediate, one of several that have arrived. Destroys nothing.
  void announce(const ibv_wc& wc);
  void on_deferred();
  // on_deferred() has something to do already; else it waits for a receiver.
  bool can_run_deferred() const { return break_owed_ || receiver_ != nullptr; }
  // True: it has failed, and those who wait were resumed.
  bool on_scan(uint64_t active_ns);
  // When on_scan() has something to do though nothing arrives, on the clock of active_ns();
  // base::Poller::kNoEvent for never.
  uint64_t next_scan_ns() const;
  void fail(Error why);

 private:
  struct Slot {
    Completion* completion;
    uint32_t requests;
    bool counted;  // false for the probe, which is not the user's
    uint64_t posted_ns;
  };

  VerbsConnection(VerbsDevice& device, uint64_t operation_timeout_ns);
  Status create_queue_pair();
  Status connect_to(ibv_qp* qp, const ibv_qp& peer);
  int remote_rights() const;
  Status modify(ibv_qp* qp, ibv_qp_attr& attr, int mask, const char* state);
  // on_deferred() is called by the next poll.
  void defer();
  // Breaks the connection now; the next poll tells the receiver. `error` is an errno.
  void fail_later(int error);
  void break_queue_pair(Error why);
  void deliver_break();
  void on_receive(const ibv_wc& wc);
  void on_message(const ibv_wc& wc);
  void on_sent(uint16_t slot);
  void keep_early(uint32_t immediate);
  void tell_disconnect();
  Error unfit(const Batch& batch) const;
  Error completion_error(const ibv_wc& wc) const;
  void repost_receives();
  void probe();
  bool fill(const WorkRequest& request, ibv_send_wr& wr, ibv_sge& sge);
  bool fits(const Batch& batch) const;
  uint64_t work_id(bool receive) const;
  void push_slot(Completion* completion, uint32_t requests, bool counted);

  VerbsDevice& device_;
  const uint64_t operation_timeout_ns_;
  ConnectionRef ref_;
  ibv_cq* queue_ = nullptr;
  CmIdHandle id_;
  CmEvents::Key key_ = 0;
  QueuePairHandle qp_;
  QueuePairHandle self_qp_;  // the other end of a connection to this device itself
  Handshake* handshake_ = nullptr;
  Handshake* hello_lender_ = nullptr;

  uint64_t posted_ = 0;
  uint64_t reclaimed_ = 0;
  uint64_t last_read_ = 0;  // posted_ after the latest READ
  // False: one READ or atomic at a time, so that the device itself keeps them in order.
  bool fences_ = true;
  uint32_t unsignaled_ = 0;
  uint32_t slot_head_ = 0;
  uint32_t slot_tail_ = 0;
  std::array<Slot, kSlots> slots_;

  uint32_t receives_owed_ = 0;
  std::array<ibv_recv_wr, kReceiveChain> receive_chain_;
  std::vector<uint32_t> early_;  // immediates that came before the first receiver
  bool had_receiver_ = false;
  bool deferred_ = false;
  bool break_owed_ = false;
  bool disconnect_owed_ = false;

  uint64_t heard_ns_ = 0;  // when the peer was last heard of, at the resolution of on_scan()
  uint64_t heard_mark_ = 0;
};

}  // namespace pmstore::fabric::verbs
