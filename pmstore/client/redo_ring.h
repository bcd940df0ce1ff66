// RedoRing: a client's end of its own redo ring under lock discipline rnic: appends, and knows up
// to where the ring may be truncated.
//
// Invariants: entries_ holds, in ring order, every append that has begun and that no truncation has
// covered. An entry is kDone only when its commit phase is acknowledged; so the oldest entries that
// are all kDone or kVoid may go. What earlier sessions have left in front of them is resolved, and
// may go at any time. Threads: one. Borrows device, connection and RPC, which outlive
// it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/executor.h"
#include "base/result.h"
#include "base/task.h"
#include "fabric/connection.h"
#include "fabric/device.h"
#include "fabric/rpc.h"
#include "log/remote_appender.h"
#include "persist/remote_writer.h"
#include "pmstore/layout/protocol.h"

namespace pmstore::internal {

class RedoRing {
 public:
  // Names one append; handed out in ring order.
  using Ticket = uint64_t;

  // Unsupported when `strategy` would not be durable at this server.
  static Result<std::unique_ptr<RedoRing>> create(fabric::Device& device,
                                                  fabric::Connection& connection,
                                                  fabric::RpcClient& rpc, const ServerHello& hello,
                                                  persist::WriteStrategy strategy);

  struct Appended {
    Ticket ticket;
    uint64_t lsn;
  };
  // Durable on return. `payload` is borrowed until then. BackPressure, also when too many commits
  // are unacknowledged; TooLarge: nothing was written. Every other error: it may be there.
  base::Task<Result<Appended>> append(uint64_t sequence, std::span<const std::byte> payload);
  // The commit phase of this append is acknowledged: its writes are in place and unlocked.
  void done(Ticket ticket);

  // Largest payload that fits.
  uint64_t max_payload_bytes() const { return max_payload_bytes_; }
  persist::WriteStrategy strategy() const { return writer_->strategy(); }
  // Behind the last entry that is known to be durable.
  uint64_t logged_tail_lsn() const { return logged_tail_lsn_; }

  bool more_than_half_used() const {
    const log::RingPosition& at = appender_->position();
    return at.free_bytes() < at.data_bytes / 2;
  }
  // Everything below may be truncated, what earlier sessions have left among it; equal to the
  // ring's start when nothing may.
  uint64_t done_through_lsn() const;
  // The server has truncated. InvalidArgument when that is absurd.
  Status truncated(uint64_t start_lsn);

  // Free space of the ring: the offset of that behind the tail, and how much there is in one piece.
  uint64_t free_offset() const {
    const log::RingPosition& at = appender_->position();
    return at.tail_lsn % at.data_bytes;
  }
  uint64_t free_bytes() const {
    const log::RingPosition& at = appender_->position();
    return std::min(at.free_bytes(), at.data_bytes - free_offset());
  }
  // For writes there, while it is kept free.
  persist::RemoteWriter& writer() { return *writer_; }
  // While one lives, append() is refused: BackPressure.
  class KeptFree {
   public:
    explicit KeptFree(RedoRing& ring) : ring_(ring) { ++ring_.kept_free_; }
    ~KeptFree() { --ring_.kept_free_; }
    KeptFree(const KeptFree&) = delete;
    KeptFree& operator=(const KeptFree&) = delete;

   private:
    RedoRing& ring_;
  };

  uint64_t start_lsn() const { return appender_->position().start_lsn; }
  // One truncation at a time; the others wait for it.
  bool truncating = false;
  base::WaitList truncation_ended;

 private:
  enum class State : uint8_t { kAppending, kVoid, kLogged, kDone };
  struct Entry {
    uint64_t next_lsn = 0;
    State state = State::kVoid;
  };
  RedoRing(Executor& executor, size_t entries) : truncation_ended(executor), entries_(entries) {}
  Entry& entry(Ticket ticket) { return entries_[ticket % entries_.size()]; }
  const Entry& entry(Ticket ticket) const { return entries_[ticket % entries_.size()]; }

  std::unique_ptr<persist::RemoteWriter> writer_;
  std::unique_ptr<log::RemoteAppender> appender_;
  uint64_t max_payload_bytes_ = 0;
  uint64_t logged_tail_lsn_ = 0;
  uint64_t begin_lsn_ = 0;      // of this session
  std::vector<Entry> entries_;  // a ring buffer of tickets [oldest_, next_)
  Ticket oldest_ = 0;
  Ticket next_ = 0;
  uint32_t kept_free_ = 0;
};

}  // namespace pmstore::internal
