// JointCommit: one commit of transactions at several servers, the coordinator's side.
//
//   lock       every writer: its writes are locked                       kLock
//   validate   every transaction that only reads                         as a read-only commit
//   prepare    every writer: validated, and its redo record is durable   kPrepare
//                                                                        <- the commit point: the
//                                                                        last one
//   decide     every writer                                              kDecide
//
// Each step is sent to all at once, and begins when the one before has ended everywhere. Nothing
// waits for a lock: one that is not had is Conflict.
//
// A decision that a writer has not answered is settled behind the result (pursue()): the caller
// does not wait for that. Until then the numbers are held, and no session says that they are known.
// Who gives up, or is destroyed, drops the sessions instead.
//
// Invariants: nothing is prepared before every lock is held and every reader is valid; commit is
// decided only when every writer is prepared, abort only when one of them is not and never will be.
// A writer that has not answered loses its session, so that its server ends what is only locked,
// and votes on what is prepared. Until every writer has the commit, no session says that its
// outcome is known: so each writer remembers it. Once all have it they forget it, when a request
// says so or by forget(), which its caller does not wait for. Threads: the executor's. Lifetimes:
// the transactions outlive run(), the clients all of it. It may be destroyed at any suspension, and
// then leaves in doubt what it has begun; so it runs as a JointTask.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/executor.h"
#include "base/result.h"
#include "base/task.h"
#include "pmstore/client.h"
#include "pmstore/client/client_session.h"
#include "pmstore/client/joint_task.h"
#include "pmstore/client/transaction_numbers.h"
#include "pmstore/layout/protocol.h"
#include "pmstore/layout/shard_record.h"

namespace pmstore::internal {

class JointCommit {
 public:
  // At least one transaction.
  explicit JointCommit(std::span<Transaction> transactions);
  JointCommit(const JointCommit&) = delete;
  JointCommit& operator=(const JointCommit&) = delete;
  ~JointCommit();

  base::Task<Status> run();
  // Somebody is told how it has ended. Else the numbers of its transactions are in doubt.
  void settled();
  // After run(): the transactions may go, and the messages do.
  void let_go();
  // After let_go(): settles what a writer has not answered. No try begins later than 20 s after the
  // first one; the last one ends within what the clients' options allow. `caller_knows` how it has
  // ended.
  base::Task<void> pursue(bool caller_knows);
  // After run(): a server that will not hear soon from the client's requests that every server has
  // the commit is told so.
  base::Task<void> forget();

  // The commit as a task that is still to be started, and that ends `awaited` of that task.
  static std::shared_ptr<JointTask> begin_task(std::vector<Transaction> transactions);
  static base::Executor& executor_of(const Transaction& transaction);

 private:
  struct Writer;
  base::Task<Status> begin(Transaction::State& state);
  base::Task<Status> validate_readers();
  Status lay_out();
  std::vector<ShardParticipant> others_of(const Writer& writer) const;
  base::Task<Status> run_writers();
  // Sends the request to each writer that `status` of the step before allows.
  base::Task<void> call_all(Method method);
  base::Task<void> call(Writer& writer, Method method);
  base::Task<void> decide(Decision decision);
  base::Task<Status> give_up(Error why);
  base::Task<Status> abort_or_doubt();
  static base::Task<void> run_task(std::vector<Transaction> transactions, JointTask& task);
  void drop_all();

  base::WaitList answered_;
  std::vector<Transaction::State*> readers_;
  std::vector<std::unique_ptr<Writer>> writers_;
  bool remembered_ = false;  // committed: at every writer
  bool unanswered_ = false;  // a writer may be prepared, and does not know the decision
  bool over_ = false;  // every writer has the decision, or will never have what it decides about
};

}  // namespace pmstore::internal
