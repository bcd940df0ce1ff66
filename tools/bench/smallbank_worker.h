// Worker: one coroutine of a SmallBank client. It executes one order after the other, keeps its
// ledger record in the store, and compares the store with the answers that it got.
//
// Threads: one executor. Lifetimes: client, journal, tally and control outlive it.
#pragma once

#include <array>
#include <atomic>
#include <string>

#include "base/histogram.h"
#include "tools/bench/bench_run.h"
#include "tools/bench/smallbank.h"
#include "tools/bench/smallbank_journal.h"

namespace pmstore::tools::smallbank {

// Totals of the workers of one thread; latencies in ns from the first try to the commit.
struct Tally {
  struct OfKind {
    Histogram latency_ns;  // of committed ones
    uint64_t rolled_back = 0;
    uint64_t conflicts = 0;  // tries that lost against another transaction
  };
  std::array<OfKind, kKinds> kinds;
  uint64_t unknown_committed = 0;  // outcomes that a lost connection left open, and the answer
  uint64_t unknown_aborted = 0;
  uint64_t reconnected_tries = 0;      // tries that failed for want of a server, and were repeated
  std::atomic<uint64_t> committed{0};  // for the progress line
  std::atomic<uint64_t> conflicted{0};
  // The first error of the store.
  uint64_t mismatches = 0;
  std::string first_mismatch;

  void mismatch(std::string text) {
    if (mismatches++ == 0) first_mismatch = std::move(text);
  }
};

struct WorkerPlan {
  Tables tables;
  uint64_t run = 0;
  uint32_t client = 0;
  uint32_t coroutine = 0;
  uint64_t accounts = 0;
  uint64_t seed = 0;
  uint64_t ops = 0;  // 0: until the control says stop
  uint64_t ride_through_ns = 0;
  uint64_t call_timeout_ns = 0;
  Journal* journal = nullptr;
};

// "RUN-CLIENT-COROUTINE", the key of a worker's ledger record.
std::string ledger_key(uint64_t run, uint32_t client, uint32_t coroutine);

class Worker {
 public:
  Worker(Client& client, const WorkerPlan& plan, Tally& tally)
      : client_(client),
        plan_(plan),
        tally_(tally),
        orders_(plan.seed, plan.accounts),
        key_(ledger_key(plan.run, plan.client, plan.coroutine)) {}

  // Until the plan's end or control's. The error that ended it early.
  Task<Status> run(BenchControl& control);
  // The expected ledger record, from the acknowledged and resolved transactions.
  const LedgerEntry& expected() const { return expected_; }

 private:
  enum class Done { kCommitted, kRolledBack, kGivenUp };
  Task<Result<Done>> perform(Order order, BenchControl& control);
  // One try.
  Task<Result<Done>> attempt(Order order);
  // Adds this worker's ledger record to the transaction.
  Task<Status> read_ledger(Transaction& transaction);
  // Finds out whether `unknown_` committed; then expected_ is right again.
  Task<Result<Done>> resolve();
  // Until when an answer is waited for: from a server that is there, and from one that is away.
  struct Patience {
    uint64_t present_until_ns;
    uint64_t away_until_ns;
  };
  bool worth_asking_again(ErrorCode code, const Patience& patience) const;
  Task<Status> compare_ledger(Patience patience);
  bool may_ride_through(ErrorCode code);

  Client& client_;
  WorkerPlan plan_;
  Tally& tally_;
  OrderSource orders_;
  std::string key_;
  LedgerEntry expected_;
  LedgerEntry next_;            // what expected_ becomes if the commit in flight happens
  TxId unknown_;                // the transaction of the last CommitUnknown
  uint64_t away_since_ns_ = 0;  // since when the server cannot be reached; 0: it can
};

}  // namespace pmstore::tools::smallbank
