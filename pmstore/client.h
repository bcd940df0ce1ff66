// Client: durable transactions on one pmstore server, or on a pool in this process.
//
//   Executor executor(clock);
//   auto client = executor.run(Client::connect(executor, *fabric::parse_uri("tcp://db:7000"), {}));
//   auto table = executor.run((*client)->open_table("accounts", /*create=*/true));
//   Transaction t = (*client)->begin();
//   auto balance = co_await t.get(*table, "alice");        // Result<std::string>
//   t.put(*table, "alice", "90");
//   auto done = co_await t.commit();                       // Status
//
// Threads: one client belongs to one executor; use one per thread. Many coroutines may run
// transactions on it at the same time. Lifetimes: the executor outlives the client, the client its
// transactions.
//
// Isolation: strictly serializable. Durability: when commit() has returned success, the transaction
// survives a power cut as the server's persistence domain promises. Errors of commit():
//   Conflict        another transaction won; nothing happened; run it again (retry() does)
//   CommitUnknown   the connection was lost at a moment when it may or may not have committed; the
//                   message has the transaction id; outcome() tells, also after the server's
//                   restart
//   Disconnected, Timeout, Full, TooLarge, AlreadyExists, NotFound, UnknownTable: nothing happened
// After a lost connection, the next operation reconnects by itself (bounded by
// ClientOptions::reconnect_timeout_ns); a transaction begun before that ends with Conflict.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/executor.h"
#include "base/result.h"
#include "base/task.h"
#include "fabric/capabilities.h"
#include "fabric/device.h"
#include "fabric/uri.h"
#include "persist/domain.h"
#include "persist/strategy.h"
#include "pmstore/types.h"

namespace pmstore {

struct ServerOptions;
class Server;

struct ClientOptions {
  uint64_t client =
      0;  // TxId::client; 0: random. Give the old one to ask for its outcomes as its owner
  uint64_t call_timeout_ns = 5'000'000'000;
  uint64_t connect_timeout_ns = 5'000'000'000;
  // How long an operation keeps trying to reach a server that went away; 0: it fails at once.
  uint64_t reconnect_timeout_ns = 0;
  // Reads by READ where the fabric orders them; false: always by RPC.
  bool one_sided_reads = true;
  size_t location_cache_entries = 1u << 16;  // 0: no cache
  // How the redo record gets into the server's memory under lock discipline rnic. Under cpu the
  // server logs: there only kAuto is accepted.
  persist::WriteStrategy log_strategy = persist::WriteStrategy::kAuto;
  // Refuse a server with another discipline.
  std::optional<LockDiscipline> required_discipline;
  // For local:PATH: treat the pool's memory as this domain (see PoolOpenOptions).
  std::optional<persist::Domain> assume_domain;
  // For local:PATH: the discipline of the server in this process.
  LockDiscipline local_discipline = LockDiscipline::kCpu;
  // Where the client's device comes from: a host of the modelled machine, whose servers are at
  // local:NAME. nullptr: this machine. Borrowed for the client's life.
  fabric::DeviceOpener* devices = nullptr;
};

class Client;

// One transaction. Move-only. Destroying it uncommitted aborts it. A commit that has begun goes on
// by itself to one of its ends when the transaction, or the coroutine that awaits commit(), is
// destroyed in its middle; nothing stays locked, and outcome() tells which end it was. Reads see
// the transaction's own writes. Keys 1 to 255 B, values up to 1 MiB; errors of put/insert/erase are
// reported by commit().
class Transaction {
 public:
  Transaction(Transaction&&) noexcept;
  Transaction& operator=(Transaction&&) noexcept;
  ~Transaction();

  // NotFound, which is part of the read set. Conflict when the record stays locked by somebody.
  // Views must stay alive until the task is done.
  base::Task<Result<std::string>> get(TableId table, std::string_view key);
  // Insert or overwrite. Copied.
  void put(TableId table, std::string_view key, std::string_view value);
  // commit() gives AlreadyExists when the key is there.
  void insert(TableId table, std::string_view key, std::string_view value);
  // commit() gives NotFound when it is not there.
  void erase(TableId table, std::string_view key);
  // See above. The transaction is over, whatever it gives. Read-only transactions are validated;
  // one of a single read is free.
  base::Task<Status> commit();
  void abort();
  // Its name, for outcome(). Assigned at the start of commit() for transactions that write; {0, 0}
  // before.
  TxId id() const;

 private:
  friend class Client;
  struct State;
  struct Release {
    void operator()(State* state) const;
  };
  using Ref = std::unique_ptr<State, Release>;
  explicit Transaction(Ref state);
  Ref state_;
};

struct Record {
  std::string key;
  std::string value;
};
struct ScanPage {
  std::vector<Record> records;
  uint64_t cursor = 0;   // 0: nothing more
  uint32_t damaged = 0;  // records that were skipped; of which table each was, may not be legible
};
// What a scan does about a record that the medium has changed.
enum class DamagedRecords : uint8_t { kFail, kSkip };
struct TableInfo {
  TableId id;
  std::string name;
};

// What a table holds. Counted a part at a time: what others change meanwhile may be counted or not.
struct TableUsage {
  uint64_t records = 0;
  uint64_t key_bytes = 0;
  uint64_t value_bytes = 0;
  uint64_t slot_bytes = 0;  // of the pool's memory, with headers and padding
};

struct WriteSize {
  size_t key_bytes = 0;
  size_t value_bytes = 0;
};

// What the handshake agreed on; for people and for benchmarks.
struct SessionInfo {
  std::string uri;
  uint64_t epoch = 0;
  LockDiscipline discipline = LockDiscipline::kCpu;
  persist::PersistCapability persist;
  persist::WriteStrategy log_strategy = persist::WriteStrategy::kTwoSided;
  bool one_sided_reads = false;
  bool one_sided_commit = false;
  uint64_t max_redo_bytes = 0;  // of one transaction; 0: the server does not say
  uint64_t reconnects = 0;
};

// What Client::probe() has tried, all of it with success.
struct PoolProbe {
  bool read = false;     // READs of records, lock words and index; else this fabric orders none
  bool swapped = false;  // a compare-and-swap of a lock word; under lock discipline rnic
  bool wrote = false;    // a durable write, by SessionInfo::log_strategy; under discipline rnic
};

class Client {
 public:
  // A table that the server has named within this time is not asked for again when a key is not
  // found.
  static constexpr uint64_t kTableSeenNs = 1'000'000'000;

  // Connects; for local:PATH opens the pool and serves it on this executor. Errors of
  // Device::connect, of Pool::open, and Unsupported when options ask for more than the server has.
  static base::Task<Result<std::unique_ptr<Client>>> connect(Executor& executor, fabric::Uri uri,
                                                             ClientOptions options);
  // Ends in order: says goodbye when nothing is in doubt (bounded), so that the server keeps
  // nothing.
  base::Task<void> close();
  ~Client();

  // UnknownTable when it is not there and `create` is false; errors of create_table().
  base::Task<Result<TableId>> open_table(std::string_view name, bool create = false);
  // AlreadyExists when it is there; InvalidArgument for a name that check_table_name() refuses;
  // Full when the pool has no room for another table. Durable on success.
  base::Task<Result<TableId>> create_table(std::string_view name);
  // In no particular order.
  base::Task<Result<std::vector<TableInfo>>> list_tables();
  // Deletes the table with all its records, durably. The name is free for a new table at once; the
  // id is never used again. Whoever still has it gets UnknownTable from every write and read that
  // begins after the drop (a read that finds no key: NotFound, for at most kTableSeenNs).
  // UnknownTable when there is no such table; Timeout when it is dropped, but clients that are
  // stuck keep records of it locked. After another error, or when the task is destroyed, the table
  // is dropped as a whole or not at all.
  base::Task<Status> drop_table(std::string_view name);
  // UnknownTable. Reads the header of every slot at the server, a part at a time.
  base::Task<Result<TableUsage>> table_usage(TableId table);

  // TooLarge when one transaction that makes these records would be too much for the redo ring at
  // the server, so that commit() would refuse it. Asks the handshake, not the server.
  Status check_room(std::span<const WriteSize> writes) const;

  Transaction begin();

  // Transactions of one operation. put, insert and erase are one round trip where the server's
  // discipline is cpu. Views must stay alive until the task is done.
  base::Task<Result<std::string>> get(TableId table, std::string_view key);
  base::Task<Status> put(TableId table, std::string_view key, std::string_view value);
  base::Task<Status> insert(TableId table, std::string_view key, std::string_view value);
  base::Task<Status> erase(TableId table, std::string_view key);

  // Records of a table in no particular order, a page at a time, starting with cursor 0. Each
  // record is committed; what is inserted, moved or deleted during the scan may be missed or seen
  // twice, everything else is seen once. Conflict: a record has been locked for 10 s. Damaged: the
  // medium has changed a record, unless such records shall be skipped and counted.
  base::Task<Result<ScanPage>> scan(TableId table, uint64_t cursor, uint32_t max_bytes = 256 * 1024,
                                    DamagedRecords damaged = DamagedRecords::kFail);

  // Did it commit? Waits out nothing: a transaction of this client that is still running is
  // CommitUnknown. OutcomeExpired when the server no longer knows.
  base::Task<Result<Outcome>> outcome(TxId id);

  // Tries every way in which this client may reach the pool, and leaves every byte as it is: a
  // commit of nothing; READs of each region that it was granted; a compare-and-swap of a lock word
  // for the value that it has; a durable write of its own redo ring's free space with what is
  // there, while which this client's commits wait. The error is that of the first that fails, and
  // names it. InvalidArgument while a transaction of this client commits. Its task must not be
  // destroyed before it has ended.
  base::Task<Result<PoolProbe>> probe();

  // The server's own report, JSON.
  base::Task<Result<std::string>> server_stat();

  uint64_t id() const;  // TxId::client
  const SessionInfo& session() const;
  // All connections of this client so far.
  fabric::Counters counters() const;
  Executor& executor();
  // The server in this process for local:PATH, else nullptr.
  Server* local_server();

 private:
  friend class Transaction;
  struct State;
  explicit Client(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Runs `body(Transaction&) -> Task<Status>` and commits, again and again while the answer is
// Conflict, with randomised exponential back-off (1 us to 1 ms), at most `attempts` times.
template <typename Body>
base::Task<Status> retry(Client& client, Body body, unsigned attempts = 1000) {
  uint64_t pause_ns = 1000;
  for (unsigned attempt = 1;; ++attempt) {
    Transaction transaction = client.begin();
    Status status = co_await body(transaction);
    if (status) status = co_await transaction.commit();
    if (status || status.code() != ErrorCode::kConflict || attempt == attempts) co_return status;
    Executor& executor = client.executor();
    co_await executor.sleep_for(executor.random().below(pause_ns));
    if (pause_ns < 1'000'000) pause_ns *= 2;
  }
}

}  // namespace pmstore
