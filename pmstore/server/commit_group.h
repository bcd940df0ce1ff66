// CommitGroup: transactions of lock discipline cpu that wait at the server at the same time share
// one drain.
//
// A drain of a pool in a file is an msync. It waits for the disk, and the server serves nobody
// meanwhile; so requests pile up, and all that are there afterwards can share the next one. Each is
// locked and logged when it arrives; so are the steps of transactions of several servers that log
// something: prepared, committed, aborted (two_phase.h). A coroutine then finishes the group: it
// waits a little for company, where there is any, drains once, puts everything in place, and
// answers. Where a drain takes less than ServerOptions::group_above_ns, there is nothing to share:
// each transaction is committed in the call that brings it.
//
// Invariants: a transaction of the group is answered after the drain that follows its redo record;
// the group has as many answers outstanding as the store has transactions logged. The end of a
// session, a hello, an outcome, the drop of a table and stop need a store without half-done work,
// so they call finish() first. A request that meets a lock of the group calls finish() and tries
// again. Threads: the executor's. Lifetimes: the server core outlives it; the coroutine runs among
// the core's tasks and ends before this object.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "base/executor.h"
#include "base/result.h"
#include "base/task.h"
#include "fabric/rpc.h"
#include "persist/persisted.h"
#include "pmstore/server/commit_end.h"
#include "pmstore/shard/commit_view.h"
#include "pmstore/shard/cpu_commit.h"

namespace pmstore::internal {

class ServerCore;
struct Session;

struct CommitGroupCounters {
  uint64_t groups = 0;
  uint64_t transactions = 0;  // in them
  uint64_t largest = 0;
};

// A coroutine of this process that waits for its transaction (direct_calls.h). Destroyed without an
// answer, as when the server goes away, it leaves the coroutine in doubt, as a broken connection
// does.
struct WaitingCaller {
  CommitEnd* end = nullptr;  // nullptr: answered, or the caller is gone
  ~WaitingCaller();
};
// Who gets the result of a transaction: the sender of a request, or a coroutine of this process.
using CommitCaller = std::variant<fabric::RpcCall, std::unique_ptr<WaitingCaller>>;
// What is at its end behind the drain: a transaction, or a step of one of several servers.
enum class GroupStep : uint8_t {
  kTransaction,
  kPrepared,
  kCommitted,
  kAborted,
  kCommittedOfOther,  // by a session that has not prepared it
  kAbortedOfOther,
};

class CommitGroup {
 public:
  explicit CommitGroup(ServerCore& core);

  // Commits the transaction of `session` and gives its result; nullopt: it has joined the group,
  // and wait_for_the_drain() follows at once. It may end sessions, as finish(), this one too:
  // Disconnected.
  std::optional<Status> commit(Session& session, const CommitView& request);
  // The same of a step of a transaction of several servers: `begin` logs it, or does it where there
  // is nothing to log. It is called once more behind the group when that may be in its way.
  std::optional<Status> step(Session& session, const std::function<Status()>& begin);
  // `caller` is answered with the group.
  void wait_for_the_drain(std::shared_ptr<Session> session, CommitCaller caller,
                          GroupStep step = GroupStep::kTransaction);
  // Makes the group durable and visible, and answers its transactions. False, and nothing is done,
  // when there are none. It may end sessions, whose connections break while they are answered.
  bool finish();
  // Forgets the group without an answer: the server goes away as if its process had died.
  void abandon() { waiting_.clear(); }

  const CommitGroupCounters& counters() const { return counters_; }

 private:
  // One more than these finishes the group.
  static constexpr size_t kMost = CpuCommit::kMostPrepared;

  struct Waiting {
    std::shared_ptr<Session> session;
    CommitCaller caller;
    GroupStep step;
  };

  bool shares_drains() const;
  // What the shorter one of the last two drains took.
  uint64_t usual_drain_ns() const { return std::min(last_drain_ns_, earlier_drain_ns_); }
  Status commit_alone(const CommitView& request);
  Result<persist::Persisted> drain();
  Status join(const CommitView& request);
  base::Task<void> finish_groups();
  base::Task<void> wait_for_company();
  void count_member(Session& session);
  void begin_next_group();
  void acknowledge(persist::Persisted logged, Waiting& waiting);
  void answer(Waiting& waiting, const Status& committed);
  void note_drain(uint64_t ns);

  ServerCore& core_;
  std::vector<Waiting> waiting_;  // in the order in which they joined
  base::WaitList wake_;
  bool started_ = false;  // finish_groups() runs
  // The last two took so long, in pools whose drain is an msync. One may be slow by accident.
  uint64_t last_drain_ns_ = 0;
  uint64_t earlier_drain_ns_ = 0;
  uint64_t quick_commits_ = 0;
  uint64_t number_ = 2;  // of the group that is being collected; sessions begin with 0
  // Sessions with a transaction in this group; those of them that were in the one before, too; all
  // sessions of the group before; all of the last two finished groups.
  size_t members_ = 0;
  size_t returned_ = 0;
  size_t earlier_members_ = 0;
  size_t expected_ = 0;
  CommitGroupCounters counters_;
};

}  // namespace pmstore::internal
