// Client::State: what the files that make up the client share.
//
// Control: client.cc, reconnect.cc, embedded.cc. Data path: single_write.cc, reader.cc,
// transaction.cc, commit_cpu.cc, commit_rnic.cc. Threads: the executor's.
#pragma once

#include <algorithm>
#include <array>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "pmstore/client.h"
#include "pmstore/client/client_session.h"
#include "pmstore/client/location_cache.h"

namespace pmstore::internal {

// The pool and the server of a local:PATH client.
struct Embedded;
struct EmbeddedDeleter {
  void operator()(Embedded* embedded) const;
};

// What a lookup found, and what a commit validates it by.
struct Located {
  bool found = false;
  uint8_t size_class = 0;  // of the slot, or a smaller one where that is not certain
  uint16_t reserved = 0;
  SlotOffset slot{};            // when found
  uint64_t version = 0;         // when found
  uint64_t bucket = 0;          // when not found
  uint64_t bucket_version = 0;  // when not found
};

// "CommitUnknown: ... 0123-42 ...".
Error commit_unknown(TxId id, const Error& why);

}  // namespace pmstore::internal

namespace pmstore {

struct Client::State {
  State(Executor& on, fabric::Uri at, ClientOptions with);
  ~State();

  // ---- connection (reconnect.cc) ----

  // The session in use, or nothing: then connected() makes one.
  bool has_usable_session() const { return session && session->usable() && has_sequence(); }
  // A session has only so many numbers for transactions.
  bool has_sequence() const { return next_sequence < end_sequence; }
  // The usable session; reconnects when there is none, once for all who ask at the same time.
  // The coroutine may be destroyed at any moment.
  Task<Result<internal::SessionRef>> connected();
  class Reconnecting;
  Task<Status> connect_once();
  // Waits for the commits of a session that has used up its numbers, which its end would leave in
  // doubt; not longer than they may take.
  Task<void> wait_for_commits();
  // Keeps the lease while nothing else is sent; never ends.
  Task<void> keep_lease(uint64_t interval_ns);

  // ---- transactions ----

  class Running;
  // Requires has_sequence().
  TxId next_id() { return {id, next_sequence++}; }
  void add_doubt(uint64_t sequence) {
    if (doubtful.size() == kMaxDoubts) doubtful.erase(doubtful.begin());
    doubtful.push_back(sequence);
  }
  // The commit of `id` may have happened: its session is over, so that it can be asked about.
  Error in_doubt(TxId tx, internal::ClientSession& of, const Error& why);
  // What the answer to a kCommit request says.
  Status commit_status(TxId tx, internal::ClientSession& of,
                       const Result<fabric::RpcReply>& answer) {
    if (answer && answer->bytes().size() == sizeof(CommitReply)) [[likely]]
      return {};
    return commit_failure(tx, of, answer);
  }
  Status commit_failure(TxId tx, internal::ClientSession& of,
                        const Result<fabric::RpcReply>& answer);

  // ---- data path ----

  // Finds the record, and copies its value when `value` is not nullptr. Conflict when it stays
  // locked; errors of the connection; UnknownTable.
  Task<Result<internal::Located>> locate(internal::SessionRef at, TableId table,
                                         std::string_view key, std::string* value);
  Task<Result<internal::Located>> locate_by_rpc(internal::SessionRef at, TableId table,
                                                std::string_view key, KeyHash hash,
                                                std::string* value);
  // A transaction of one write.
  Task<Status> write_one(WriteKind kind, TableId table, std::string_view key,
                         std::string_view value);
  Task<Status> write_one_rnic(WriteKind kind, TableId table, std::string_view key,
                              std::string_view value);
  // The server has said that the table exists. One-sided reads do not notice when it is dropped:
  // they find no key. So a client asks the server about a key that is not there when it has not
  // heard of the table for kTableSeenNs.
  void saw_table(TableId table) {
    seen_tables[raw(table) % kSeenTables] = {table, executor.now_ns()};
  }
  bool knows_table(TableId table) const {
    const SeenTable& seen = seen_tables[raw(table) % kSeenTables];
    return seen.table == table && executor.now_ns() - seen.at_ns < kTableSeenNs;
  }
  // A new or used one, empty.
  Transaction::Ref take_transaction();

  // ---- commits that nobody has to wait for ----

  // Runs `commit` to its end, or to the end of this client.
  using Commits = std::list<Task<void>>;
  void run_commit(Task<void> commit);
  // The last thing that the commit which is running does.
  void commit_ended(Commits::iterator commit) {
    ended_commits.splice(ended_commits.end(), commits, commit);
  }

  Executor& executor;
  fabric::Uri uri;
  ClientOptions options;
  uint64_t id;
  uint64_t next_sequence = 1;
  uint64_t end_sequence = 0;  // of the session's numbers
  std::shared_ptr<fabric::Device> device;
  std::unique_ptr<internal::Embedded, internal::EmbeddedDeleter> embedded;
  fabric::Uri server_uri;  // where to connect: `uri`, or where the server in this process listens
  std::shared_ptr<internal::SessionBook> book = std::make_shared<internal::SessionBook>();
  internal::SessionRef session;
  internal::LocationCache cache;
  struct SeenTable {
    TableId table{};
    uint64_t at_ns = 0;
  };
  static constexpr size_t kSeenTables = 64;
  std::array<SeenTable, kSeenTables> seen_tables{};
  SessionInfo info;
  base::WaitList reconnected;
  bool reconnecting = false;
  std::optional<Error> reconnect_failure;  // of the last try; empty after a success
  bool closed = false;
  std::vector<uint64_t> running;  // sequences of commits under way
  // Sequences that ended with CommitUnknown, or unheard, and were not asked for: the youngest
  // kMaxDoubts.
  static constexpr size_t kMaxDoubts = 4096;
  std::vector<uint64_t> doubtful;
  // Where requests are laid out; an RPC call copies its request before it suspends, so one is
  // enough for all coroutines.
  std::unique_ptr<std::byte[]> scratch;
  size_t scratch_bytes = 0;
  std::vector<std::unique_ptr<Transaction::State>> spare;  // transactions to be used again
  Task<void> lease;
  Commits ended_commits;  // to be cleared when none of them is running
  Commits commits;        // last: goes first
};

// Marks a sequence as running for as long as it lives. Destroyed before settled(), nobody has been
// told how it ended, and it is in doubt.
class Client::State::Running {
 public:
  Running(State& state, uint64_t sequence) : state_(state), sequence_(sequence) {
    state_.running.push_back(sequence_);
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  ~Running() {
    const auto found = std::find(state_.running.begin(), state_.running.end(), sequence_);
    *found = state_.running.back();
    state_.running.pop_back();
    if (!settled_) state_.add_doubt(sequence_);
  }
  void settled() { settled_ = true; }

 private:
  State& state_;
  uint64_t sequence_;
  bool settled_ = false;
};

}  // namespace pmstore
