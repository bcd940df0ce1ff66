// OfiConnection: one libfabric endpoint with a completion queue of its own; see
// fabric/connection.h.
//
// One endpoint per connection is what makes fencing hold: the provider moves data into our memory
// only while we progress the endpoint that it was sent to, so closing the endpoint is like
// destroying a QP. A queue per connection means that an immediate cannot be sent in another
// client's name.
//
// The life of one: handshaking (control messages go through, immediates that arrive are kept), then
// established, then broken. TcpConnection and ShmConnection add how control messages travel.
//
// Invariants:
//   each slot is on exactly one of the lists free and pending; pending is in posting order
//   queued work requests are issued before any that is posted later
//   broken  =>  the endpoint is closed and nothing is pending or queued
#pragma once

#include <rdma/fi_rma.h>

#include <optional>
#include <vector>

#include "fabric/connection.h"
#include "fabric/ofi/internal/destruction_watch.h"
#include "fabric/ofi/internal/mailbox.h"
#include "fabric/ofi/internal/provider.h"

namespace pmstore::fabric::ofi {

class OfiDevice;

struct ConnectionOptions {
  uint64_t operation_timeout_ns;
};

class OfiConnection : public Connection {
 public:
  ~OfiConnection() override;
  OfiConnection(const OfiConnection&) = delete;
  OfiConnection& operator=(const OfiConnection&) = delete;

  Status post(const Batch& batch, Completion* completion) override;

  // ---- for the device ----
  // Takes what the completion queue has and issues what is queued; returns how much it handled. The
  // connection may be gone afterwards.
  size_t poll();
  // Deadlines, and whatever the transport must look at now and then. It may be gone afterwards.
  virtual void tick(uint64_t now_ns);
  // The other end is gone: delivers what had arrived, then fails. It may be gone afterwards.
  void on_peer_closed(const Error& why);
  // Breaks it: closes the endpoint, fails what is outstanding, tells the receiver. Nothing if
  // broken. It may be gone afterwards.
  void fail(const Error& why);
  bool has_endpoint(const fid* endpoint) const { return endpoint_ && &endpoint_->fid == endpoint; }

  // ---- for the handshake ----
  virtual bool transport_ready() const = 0;
  // What the other side needs in order to reach this endpoint.
  virtual std::string endpoint_name() const = 0;
  // Takes what the other side's endpoint_name() gave.
  virtual Status link(const std::string& peer_endpoint) = 0;
  virtual Status send_control(std::vector<std::byte> message) = 0;
  std::optional<std::vector<std::byte>> take_control() { return std::exchange(inbox_, {}); }
  // The other end has linked to this one.
  virtual void peer_has_linked() {}
  void set_peer_hello(std::vector<std::byte> hello) { peer_hello_ = std::move(hello); }
  // The handshake is complete and the receiver is set: delivers the immediates that came early. It
  // may be gone afterwards.
  void establish();
  // Gives `connection` to its new owner, who sets the receiver or destroys it, then tells the peer
  // and establishes it.
  template <typename Give>
  static void give_away(std::unique_ptr<OfiConnection> connection, std::vector<std::byte> welcome,
                        Give give) {
    OfiConnection* observed = connection.get();
    DestructionWatch watch(observed->lifetime_);
    give(std::move(connection));
    if (watch.destroyed()) return;
    if (Status sent = observed->send_control(std::move(welcome)); !sent) {
      observed->fail(sent.error());
    } else {
      observed->establish();
    }
  }

 protected:
  OfiConnection(OfiDevice& device, const ConnectionOptions& options);

  // Opens the endpoint and its queue. `context` comes back in CM events.
  Status open_endpoint(const fi_info& info, fi_wait_obj wait_object);
  // What is not closed here is closed by the derived class's close_transport().
  void close_endpoint();
  virtual void close_transport() {}
  // True if the endpoint has served the peer's READs or WRITEs since the last call, where that can
  // be seen: they make no completion here, but an executor must not fall asleep over them.
  virtual bool served_peer() { return false; }
  void receive_control(std::vector<std::byte> message);
  virtual void on_control_received(size_t) {}

  OfiDevice& device_;
  // What is special about tcp: immediates go through it instead of through the completion queue.
  std::unique_ptr<Mailbox> mailbox_;  // before endpoint_: the peer may write until that is closed
  FidPtr<fid_cq> queue_;
  FidPtr<fid_ep> endpoint_;  // after queue_: closed before it
  fi_addr_t peer_ = FI_ADDR_UNSPEC;
  // Of tcp too: libfabric queues without bound, so this is how many requests may be
  // issued and not yet proven done; every quarter of it, one is reported unasked. 0: no need.
  uint64_t window_ = 0;
  // What is special about shm.
  bool check_grants_ = false;
  bool empty_delivery_hangs_ = false;  // of a WRITE of no bytes with FI_DELIVERY_COMPLETE
  bool established_ = false;
  Lifetime lifetime_;

 private:
  static constexpr uint32_t kSlots = 1024;
  static constexpr uint32_t kNoSlot = UINT32_MAX;
  static constexpr uint32_t kMaxQueued = 512;
  static constexpr size_t kMaxEarly = 1024;

  // A signaled batch that has not completed, or (without a Completion) a proof for window_.
  struct Slot {
    Completion* completion = nullptr;
    uint64_t sequence = 0;     // issued_ when it was
    uint64_t deadline_ns = 0;  // 0: not yet stamped by tick()
    uint32_t reports = 0;      // completions of libfabric's that are still to come
    uint32_t next = kNoSlot;
    uint32_t previous = kNoSlot;
  };
  struct Queued {
    WorkRequest request;
    uint64_t flags;
    uint32_t slot;
  };

  Status check(const Batch& batch) const;
  // The request whose completion says that the data of the whole batch has arrived. The last one's
  // own is needed too, where that is another.
  size_t proof_of(const Batch& batch) const;
  uint64_t flags_of(const WorkRequest& request, bool more, bool reported) const;
  void count(const WorkRequest& request);
  // 0, -FI_EAGAIN, or another error of libfabric.
  ssize_t issue(const WorkRequest& request, uint64_t flags, uint32_t slot);
  ssize_t issue_reported(const WorkRequest& request, uint64_t offset, uint64_t flags);
  ssize_t hand_over(const WorkRequest& request, uint64_t offset, uint64_t flags, uint32_t slot);
  // Issues from the queue until it is empty or libfabric has no room.
  void issue_queued();
  void enqueue(const WorkRequest& request, uint64_t flags, uint32_t slot);
  uint32_t take_slot(Completion* completion, uint32_t reports);
  void release_slot(uint32_t slot);
  size_t drain_queue();
  size_t drain_mailbox();
  void handle(const fi_cq_data_entry& entry);
  void handle_immediate(uint32_t immediate);
  Error queue_error();
  std::optional<Error> overdue(uint64_t now_ns);

  const uint64_t operation_timeout_ns_;
  bool failing_ = false;
  std::optional<Error> post_error_;  // found inside post(), told from poll()
  std::optional<std::vector<std::byte>> inbox_;
  std::vector<uint32_t> early_immediates_;

  std::vector<Slot> slots_;
  uint32_t free_ = kNoSlot;
  uint32_t oldest_ = kNoSlot;
  uint32_t newest_ = kNoSlot;
  uint64_t issued_ = 0;         // work requests handed to libfabric
  uint64_t last_reported_ = 0;  // issued_ at the last one that has a slot
  uint64_t proven_ = 0;         // of issued_, known to be done

  std::vector<Queued> queued_;  // ring
  uint32_t queue_head_ = 0;
  uint32_t queue_size_ = 0;
  uint64_t issued_from_queue_ = 0;
  uint64_t issued_at_last_tick_ = 0;
  uint64_t queue_deadline_ns_ = 0;
};

}  // namespace pmstore::fabric::ofi
