// TailPublisher: writes the durable tail of a log into the server's DRAM, 8 bytes per WRITE, where
// readers look for it.
//
// The WRITE is piggybacked on the next append (persist::WriteRider). If no append follows, the
// owner posts it alone. The tail that it carries is durable on every replica already, so readers
// may see it at any time. Publications must stay in order; one queue pair keeps them so.
//
// Invariants: confirmed <= posted <= durable. Every slot holds a tail that was durable when the
// slot was filled, so a WRITE that reads its slot late publishes a tail that is still right.
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
  // Suspends until there may be a tail to post.
  base::WaitList::Awaiter wait() { return work_.wait(); }
  // Posts the durable tail alone, unsignaled, if it is not posted yet. Does nothing when the send
  // queue is full.
  void post();
  // Publishes the tail that is durable now. On return the tail is in the server's memory if the
  // fabric orders READs behind WRITEs: the completion of a WRITE does not prove that, but a READ
  // behind the WRITE does. On other fabrics the tail may still be on its way. Timeout when the send
  // queue stays full for `timeout_ns`.
  base::Task<Status> publish(uint64_t timeout_ns);

 private:
  static constexpr size_t kSlots = 64;  // of 8 bytes, used in rotation
  TailPublisher(fabric::Device& device, fabric::Connection& connection,
                const fabric::RemoteRegion& target, uint64_t tail_lsn);

  fabric::Connection& connection_;
  fabric::RemoteRegion target_;
  std::array<uint64_t, kSlots + 1> slots_{};  // the last one: target of publish()'s READ, unused
  std::unique_ptr<fabric::MemoryRegion> region_;
  size_t next_slot_ = 0;  // advances with each WRITE that was posted, not with failed tries
  uint64_t durable_;
  uint64_t boarding_ = 0;
  uint64_t posted_;
  uint64_t confirmed_;  // proved to be in the server's memory
  base::WaitList work_;
  fabric::Batch batch_;  // made and posted without a suspension in between
};

}  // namespace pmstore::log::internal
