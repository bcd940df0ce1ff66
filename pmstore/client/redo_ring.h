// RedoRing: a client's own redo ring under lock discipline rnic: it appends, and knows how far the
// ring may be truncated.
//
// Each append has an entry, in ring order: kAppending, then kLogged or kVoid (nothing was written);
// a logged entry becomes kDone when its commit phase is acknowledged. Invariants: entries_ holds
// every append that has begun and that no truncation has covered; only entries that are kDone or
// kVoid, with no other entry before them, are truncated; LSNs grow along the entries. What earlier
// sessions have left before the first entry is resolved, and may be truncated at any time.
// Threads: one. Borrows device, connection and RPC, which outlive it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/executor.h"
#include "base/result.h"
#include "base/task.h"
#include "fabric/connection.h"
#include "fabric/device.h"
#include "fabric/rpc.h"
#include "log/remote_appender.h"
#include "persist/memory.h"
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
                                                  fabric::RpcClient& rpc, const RingReply& granted,
                                                  const persist::PersistCapability& server,
                                                  persist::WriteStrategy strategy,
                                                  persist::PaddingRules padding);

  struct Appended {
    Ticket ticket;
    uint64_t lsn;
    persist::Persisted persisted;  // the entry is durable
  };
  // Durable on return. `payload` is borrowed until then. BackPressure (the ring is full, too many
  // commits are unacknowledged, or a KeptFree exists), TooLarge: nothing was written. Every other
  // error: the entry may be in the ring.
  base::Task<Result<Appended>> append(uint64_t sequence, std::span<const std::byte> payload);
  // The commit phase of this append is acknowledged: its records are in their slots and unlocked.
  // CHECK: the append has succeeded, and this is called once.
  void done(Ticket ticket);

  const RingReply& granted() const { return granted_; }
  // Largest payload that fits.
  uint64_t max_payload_bytes() const { return max_payload_bytes_; }
  persist::WriteStrategy strategy() const { return writer_->strategy(); }
  // The LSN after the last entry that is known to be durable.
  uint64_t logged_tail_lsn() const { return logged_tail_lsn_; }

  bool more_than_half_used() const {
    const log::RingPosition& position = appender_->position();
    return position.free_bytes() < position.data_bytes / 2;
  }
  // The ring may be truncated up to this LSN, with what earlier sessions have left. It equals
  // start_lsn() when nothing may be truncated.
  uint64_t done_through_lsn() const;
  // The server has truncated the ring up to `start_lsn`. InvalidArgument: that LSN is not between
  // the ring's start and its tail.
  Status truncated(uint64_t start_lsn);

  // Free space of the ring: its offset, right after the tail, and its size in one piece.
  uint64_t free_offset() const {
    const log::RingPosition& position = appender_->position();
    return position.tail_lsn % position.data_bytes;
  }
  uint64_t free_bytes() const {
    const log::RingPosition& position = appender_->position();
    return std::min(position.free_bytes(), position.data_bytes - free_offset());
  }
  // For writes to the free space, while a KeptFree exists.
  persist::RemoteWriter& writer() { return *writer_; }
  // While such an object exists, append() is BackPressure.
  class KeptFree {
   public:
    explicit KeptFree(RedoRing& ring) : ring_(ring) { ++ring_.kept_free_; }
    ~KeptFree() {
      PMSTORE_CHECK(ring_.kept_free_ > 0, "each KeptFree is counted");
      --ring_.kept_free_;
    }
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
  RedoRing(Executor& executor, const RingReply& granted, size_t entries)
      : truncation_ended(executor), granted_(granted), entries_(entries) {}
  Entry& entry(Ticket ticket) { return entries_[ticket % entries_.size()]; }
  const Entry& entry(Ticket ticket) const { return entries_[ticket % entries_.size()]; }

  const RingReply granted_;
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
