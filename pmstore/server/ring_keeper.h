// RingKeeper: which client uses which redo ring of the pool under lock discipline rnic, from the
// request for a ring until the ring is given back.
//
// A client asks for a ring before its first one-sided commit (Method::kRing); a client that only
// reads never has one. A ring may take an extent whose space is zeroed in parts, and that is then
// made durably, a change of its owner that is made durably, and two pieces of memory that an RNIC
// pins. Each of these steps, and each part, has a turn of the executor of its own, and requests are
// served one after another; the answers of other sessions go in between. When its session has
// ended, a ring stays its client's as long as outcomes are kept. Then it is given back. Invariants:
// a ring with a user is owned by the user's client; a session whose ring has no memory region yet
// has no lock lists; a ring that is given back has no owner, no user and no region. Threads: the
// executor's. Lifetimes: the server core outlives it; its coroutines run among the core's tasks.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "base/task.h"
#include "fabric/rpc.h"
#include "log/ring.h"
#include "pmstore/layout/protocol.h"
#include "pmstore/types.h"

namespace pmstore::internal {

class ServerCore;
struct Session;

struct RingKeeperCounters {
  uint64_t granted = 0;
  uint64_t refused = 0;
};

class RingKeeper {
 public:
  // For as many rings as the pool can have.
  explicit RingKeeper(ServerCore& core);

  // Answers a request of `session` for a ring with RingReply. BackPressure: every ring is used by
  // another session, or this client's last session is still being resolved. Full: the pool has no
  // room for another ring. Io; BadPool; errors of Device::register_memory(). Counts as one of the
  // session's handlers until then.
  void ask(std::shared_ptr<Session> session, fabric::RpcCall call);
  // The session has ended, and is resolved. After a goodbye its client owns no ring any more, and
  // the client's outcomes are OutcomeExpired.
  void release(Session& session);
  // From here on the rings of clients that are gone are given back when their time is over.
  void watch();
  // The server goes away: drops requests and users. No coroutine of this object runs any more.
  void abandon();

  const RingKeeperCounters& counters() const { return counters_; }

 private:
  struct Use {
    std::shared_ptr<Session> user;  // at work, or being resolved; empty: nobody
    uint64_t ended_ns = 0;          // when the last user's session ended
  };
  struct Asked {
    std::shared_ptr<Session> session;
    fabric::RpcCall call;
  };

  uint64_t retention_ns() const;
  std::optional<uint32_t> owned_by(ClientId client) const;
  std::optional<uint32_t> unowned() const;
  std::optional<uint32_t> departed_longest_ago() const;
  bool ended_before(uint32_t one, uint32_t other) const;
  bool is_kept(uint32_t ring) const;

  base::Task<void> serve();
  base::Task<Result<RingReply>> grant(Session& session);
  base::Task<Status> find_ring(Session& session);
  base::Task<Status> zero_ahead(const Session& session);
  Status take(Session& session, uint32_t ring);
  base::Task<Status> next_turn(const Session& session);
  base::Task<void> give_rings_back();
  bool disown(uint32_t ring);

  ServerCore& core_;
  std::vector<Use> uses_;  // by the index of the ring
  std::deque<Asked> asked_;
  RingKeeperCounters counters_;
  bool serving_ = false;   // serve() runs
  bool watching_ = false;  // give_rings_back() runs
};

}  // namespace pmstore::internal
