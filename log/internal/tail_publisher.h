// TailPublisher: tells the readers of a log how far it is durable, by WRITEs of 8 bytes to the
// server's DRAM.
//
// It rides in front of the next append (persist::WriteRider); when none comes, the owner posts it
// by itself. What is carried is durable on every replica already, so it may be seen at any time and
// needs no order against anything but the publications before it: one queue pair keeps that.
//
// Invariants: confirmed <= posted <= durable; every slot holds a tail that was durable when it was
// put there, so that a WRITE which reads its source late publishes nothing wrong.
// Threads: those of the connection. Destroyed after the connection.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/executor.h"
#include "base/result.h"
#include "base/task.h"
#include "fabric/connection.h"
#include "fabric/device.h"
#include "persist/remote_writer.h"

namespace pmstore::log::internal {

class TailPublisher final : public persist::WriteRider {
 public:
  // `target`: 8 bytes that hold `tail_lsn`. Errors of register_memory().
  static Result<std::unique_ptr<TailPublisher>> create(fabric::Device& device,
                                                       fabric::Connection& connection,
                                                       const fabric::RemoteRegion& target,
                                                       uint64_t tail_lsn);

  // Everything below `tail_lsn` is durable, which `entries` proves. Never goes back (CHECK).
  void set_durable(persist::Persisted entries, uint64_t tail_lsn);
  // The same of a replicated log, on every replica. The caller has the proof of each replica.
  void set_acknowledged(uint64_t tail_lsn);
  uint64_t durable() const { return durable_; }

  std::optional<Ride> board() override;
  void departed() override;

  bool all_posted() const { return posted_ == durable_; }
  uint64_t posted() const { return posted_; }
  // Suspends until something may be there to be posted.
  base::WaitList::Awaiter wait() { return work_.wait(); }
  // Posts what is not posted by itself, unsignaled. Not posted when there is no room.
  void post();
  // What is durable now is in the server's memory on return, where the fabric orders READs behind
  // WRITEs: a WRITE's completion does not say so, a READ behind it does. Elsewhere it is on its
  // way. Timeout when the send queue stays full for `timeout_ns`.
  base::Task<Status> publish(uint64_t timeout_ns);

 private:
  static constexpr size_t kSlots = 64;  // of 8 bytes, used in turn
  TailPublisher(fabric::Device& device, fabric::Connection& connection,
                const fabric::RemoteRegion& target, uint64_t tail_lsn);

  fabric::Connection& connection_;
  fabric::RemoteRegion target_;
  std::array<uint64_t, kSlots + 1> slots_{};  // the last one: what publish() has READ, unused
  std::unique_ptr<fabric::MemoryRegion> region_;
  size_t next_slot_ = 0;  // goes on with what departs: a try that found no room takes no slot
  uint64_t durable_;
  uint64_t boarding_ = 0;
  uint64_t posted_;
  uint64_t confirmed_;  // certainly at the server
  base::WaitList work_;
  fabric::Batch batch_;  // made and posted without a suspension in between
};

}  // namespace pmstore::log::internal
