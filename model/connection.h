// ModelConnection: one end of a reliable connection between modelled hosts.
//
// The local provider (fabric/local) is underneath: it checks keys, bounds and rights, moves the
// bytes, and notices when the other end is destroyed. This class and model/rnic.h decide when.
// Posting costs time of the device's core (core.wqe_ns, core.doorbell_ns); completions and
// immediates are delivered when that core is free. Everything that verbs orders is ordered. Atomics
// are declared as AtomicScope::kDevice.
//
// A WRITE is acknowledged when the target's RNIC has received it, and reaches the target's memory
// later: a READ of the same connection waits for that. When a connection breaks or either end is
// destroyed, the WRITEs that the target's RNIC has received take effect inline, and no others do.
// Threads: the executor's.
#pragma once

#include <cstdint>
#include <memory>

#include "base/check.h"
#include "fabric/connection.h"
#include "fabric/local/local_connection.h"
#include "model/core.h"
#include "model/queue_pair.h"

namespace pmstore::model {

class ModelDevice;

class ModelConnection final : public fabric::Connection, private fabric::Receiver {
 public:
  ModelConnection(ModelDevice& device, std::unique_ptr<fabric::LocalConnection> inner,
                  QueuePair& qp);
  ~ModelConnection() override;

  Status post(const fabric::Batch& batch, fabric::Completion* completion) override;

  // ---- for Rnic ----
  // Whether the target grants `operation`. If not, the connection breaks.
  bool grants(const Operation* operation);
  bool reaches_peer() const { return inner_->reaches_peer(); }
  // Runs `request` at the target now, after a call of `about_to()`. False: the connection was or is
  // now broken.
  template <typename AboutTo>
  bool take_effect(const fabric::WorkRequest& request, AboutTo about_to) {
    if (inner_->take_effect(request, about_to)) [[likely]]
      return true;
    tell_of_break();
    return false;
  }
  // The first WQE of the send queue was answered.
  void wqe_done() {
    PMSTORE_CHECK(qp_.wqes > 0, "each WQE is answered once");
    --qp_.wqes;
  }
  // Breaks the connection if a request that was posted at `posted_ps` has timed out.
  void check_age(uint64_t posted_ps);
  // Fails all signaled requests and tells the receiver, with the error of the break.
  void give_up();
  // The number of the protection entry of a local buffer, and of a key of this end.
  uint64_t region_number(const fabric::WorkRequest& request) const;
  uint64_t region_number(uint64_t key) const;

  // ---- for Core ----
  bool has_receiver() const { return receiver_ != nullptr; }
  // May destroy this.
  void take(const Delivery& delivery);

 private:
  void on_immediate(uint32_t immediate) override;
  void on_disconnect(const Error& why) override;

  Status check_postable(const fabric::Batch& batch) const;
  Operation* make_operation(const fabric::WorkRequest& request);
  void write_received();
  void tell_of_break();  // to the other end

  ModelDevice& device_;
  std::unique_ptr<fabric::LocalConnection> inner_;
  QueuePair& qp_;
  Error why_lost_{ErrorCode::kDisconnected, {}};  // the error that give_up() will tell
};

}  // namespace pmstore::model
