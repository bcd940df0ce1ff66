// OfiConnection: one libfabric endpoint with a completion queue of its own; see
// fabric/connection.h.
//
// Each connection has an endpoint of its own, for fencing: the provider writes the memory of this
// process only while the process progresses the endpoint that was addressed, so closing the
// endpoint is like destroying a QP. Each has a queue of its own, so that no client can send an
// immediate in the name of another client.
//
// ShmConnection adds the control messages.
//
// Invariants:
//   each slot is on exactly one of the lists free and pending; pending is in posting order
//   queued work requests are issued before any that is posted later
//   broken  =>  the endpoint is closed and nothing is pending or queued
#pragma once

#include <rdma/fi_rma.h>

#include <optional>
#include <vector>

#include "fabric/internal/polled_connection.h"
#include "fabric/ofi/internal/provider.h"

namespace pmstore::fabric::ofi {

class OfiDevice;

using internal::ConnectionOptions;
using internal::DestructionWatch;

class OfiConnection : public internal::PolledConnection {
 public:
  ~OfiConnection() override;

  Status post(const Batch& batch, Completion* completion) override;

  size_t poll() override;
  void tick(uint64_t now_ns) override;
  uint64_t next_tick_ns(uint64_t now_ns) override { return now_ns + 1'000'000; }
  // The peer has closed: delivers what has arrived, then fails. This may be destroyed afterwards.
  void on_peer_closed(const Error& why);

 protected:
  OfiConnection(OfiDevice& device, const ConnectionOptions& options);

  // Opens the endpoint and its queue.
  Status open_endpoint(const fi_info& info);
  void close_endpoint();
  void close_transport() override;
  // True if the endpoint has served READs or WRITEs of the peer since the last call, as far as that
  // can be seen. They make no completion at this end, but they keep the executor from sleeping.
  virtual bool served_peer() { return false; }

  OfiDevice& device_;
  FidPtr<fid_cq> queue_;
  FidPtr<fid_ep> endpoint_;  // after queue_: closed before it
  fi_addr_t peer_ = FI_ADDR_UNSPEC;

 private:
  static constexpr uint32_t kSlots = 1024;
  static constexpr uint32_t kNoSlot = UINT32_MAX;
  static constexpr uint32_t kMaxQueued = 512;

  // A signaled batch that has not completed.
  struct Slot {
    Completion* completion = nullptr;
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

  // The index of the request whose completion proves that the data of the whole batch has arrived.
  // The completion of the last request is needed too.
  size_t proof_of(const Batch& batch) const;
  uint64_t flags_of(const WorkRequest& request, bool more, bool reported) const;
  // 0, -FI_EAGAIN, or another error of libfabric.
  ssize_t issue(const WorkRequest& request, uint64_t flags, uint32_t slot);
  ssize_t hand_over(const WorkRequest& request, uint64_t offset, uint64_t flags, uint32_t slot);
  // Issues from the queue until it is empty or libfabric has no room.
  void issue_queued();
  void enqueue(const WorkRequest& request, uint64_t flags, uint32_t slot);
  uint32_t take_slot(Completion* completion, uint32_t reports);
  void release_slot(uint32_t slot);
  size_t drain_queue();
  void handle(const fi_cq_data_entry& entry);
  Error queue_error();
  std::optional<Error> overdue(uint64_t now_ns);

  Completion* take_outstanding() override;

  const uint64_t operation_timeout_ns_;
  std::optional<Error> post_error_;  // found inside post(), told from poll()

  std::vector<Slot> slots_;
  uint32_t free_ = kNoSlot;
  uint32_t oldest_ = kNoSlot;
  uint32_t newest_ = kNoSlot;

  std::vector<Queued> queued_;  // ring
  uint32_t queue_head_ = 0;
  uint32_t queue_size_ = 0;
  uint64_t issued_from_queue_ = 0;
  uint64_t issued_at_last_tick_ = 0;
  uint64_t queue_deadline_ns_ = 0;
};

}  // namespace pmstore::fabric::ofi
