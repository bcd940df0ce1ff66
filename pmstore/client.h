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
// Threads: a client belongs to one executor; use one client per thread. Many coroutines may run
// transactions of one client at the same time. Lifetimes: the executor outlives the client, and the
// client outlives its transactions and tasks.
//
// Isolation: strictly serializable. Durability: when commit() has returned success, the transaction
// survives a power cut as the server's persistence domain promises. Errors of commit():
//   Conflict        another transaction changed the same data first; nothing happened; run the
//                   transaction again (retry() does)
//   CommitUnknown   the connection was lost during the commit; the transaction may or may not have
//                   committed; the message has the transaction id, and outcome() tells, also after
//                   the server's restart
//   Disconnected, Timeout, Full, TooLarge, AlreadyExists, NotFound, UnknownTable: nothing happened
// After the connection was lost, the next operation reconnects, for at most
// ClientOptions::reconnect_timeout_ns. A transaction that began before that ends with Conflict.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "base/result.h"
#include "base/task.h"
#include "fabric/capabilities.h"
#include "fabric/device.h"
#include "fabric/uri.h"
#include "persist/domain.h"
#include "persist/strategy.h"
#include "pmstore/record_page.h"
#include "pmstore/types.h"

namespace pmstore {

struct ServerOptions;
class Server;

struct ClientOptions {
  // TxId::client is its id; empty: random. A client that gives the secret of an earlier client
  // continues it: it may ask for the outcomes of that client's transactions.
  ClientSecret secret;
  uint64_t call_timeout_ns = 5'000'000'000;
  uint64_t connect_timeout_ns = 5'000'000'000;
  // An operation tries so long to reach a server that does not answer; 0: it tries once.
  uint64_t reconnect_timeout_ns = 0;
  // Read records by RDMA READ where the fabric orders READs; false: always by RPC, and then, under
  // lock discipline cpu, the session keeps no extent of records from going back to the pool. Has no
  // effect on a pool in this process (local:PATH) under cpu, which is read by calls.
  bool one_sided_reads = true;
  // Has no effect where no read is one-sided.
  MissPath misses = MissPath::kAuto;
  size_t location_cache_entries = 1u << 16;  // 0: no cache
  // Under lock discipline rnic: how the client makes its redo records durable in the server's
  // memory. Under cpu the server writes the redo log, and every value but kAuto is Unsupported.
  persist::WriteStrategy log_strategy = persist::WriteStrategy::kAuto;
  // connect() is Unsupported when the server has another discipline; nullopt: accept both.
  std::optional<LockDiscipline> required_discipline;
  // Transaction::view() gives a transaction that has taken views for so long no further one. It
  // looks at the clock at the second, the 18th, the 34th ... view of a transaction.
  uint64_t longest_view_ns = 60'000'000'000;
  // For local:PATH: the persistence domain to assume for the pool's memory (PoolOpenOptions).
  std::optional<persist::Domain> assume_domain;
  // For local:PATH: the discipline of the server in this process.
  LockDiscipline local_discipline = LockDiscipline::kCpu;
  // For local:PATH: as ServerOptions; what the pool keeps beside it holds, too.
  std::optional<uint64_t> most_record_bytes;
  // Opens the client's device: a host of the modelled machine, whose servers have the addresses
  // local:NAME. nullptr: this machine. Outlives the client.
  fabric::DeviceOpener* devices = nullptr;
  // The server at the address to connect to, where it is in this process and on the client's
  // executor: under lock discipline cpu the client calls it for transactions and reads, as one of
  // local:PATH does, and sends no messages for them. It outlives the client.
  Server* server = nullptr;
};

namespace internal {
class JointCommit;
class Settlement;
class ValueRoom;
class ViewedSlots;
}  // namespace internal

class BatchWriter;
class Client;
class TransactionScan;
struct ErasedRange;

// Of several keys; nullopt: the key is absent.
using Values = std::vector<std::optional<std::string>>;

// One transaction. Move-only. Destroying it before commit() aborts it. Once commit() has begun, the
// commit runs to its end even if the transaction, or the coroutine that awaits commit(), is
// destroyed; nothing stays locked, and outcome() tells whether it committed. Reads see the
// transaction's own writes. Keys have 1 to 512 B, values up to 1 MiB. commit() reports the errors
// of put(), insert() and erase().
class Transaction {
 public:
  Transaction(Transaction&&) noexcept;
  Transaction& operator=(Transaction&&) noexcept;
  ~Transaction();

  // The value. NotFound: the key is absent, which the commit validates as it validates a value.
  // Conflict: another transaction keeps the record locked. InvalidArgument: commit() was called.
  // UnknownTable; errors of the connection. `key` is borrowed until the task ends.
  base::Task<Result<std::string>> get(TableId table, std::string_view key);
  // The same into memory of the caller, borrowed until the task ends; gives the value's size. A
  // value that is larger than `into` is not copied; the commit validates it all the same.
  base::Task<Result<size_t>> get(TableId table, std::string_view key, std::span<std::byte> into);
  // The values of several keys, in their order; nullopt: the key is absent. Validated like one
  // get() for each, and quicker: the look-ups overlap. Errors of get(); which keys were read then
  // is not certain. The keys are borrowed until the task ends.
  base::Task<Result<Values>> get_many(TableId table, std::span<const std::string_view> keys);
  // The value where it lies in the pool, without a copy: for clients whose server is in their
  // process (local:PATH). Its checksum was checked. The bytes stay as they are until commit() or
  // abort() is called, the transaction is destroyed, or Client::close() is called, whichever comes
  // first; they must not be used behind that. A commit that changes or erases the record meanwhile,
  // and a drop of its table, leave them as they are: the record then moves to another slot. The
  // slot that it leaves is not used again before the last view of it has ended; so end the
  // transaction soon. Of a value that the transaction itself has written it is a copy. Validated
  // like get(). Other errors than those of get(): Unsupported: the server is in another process, or
  // under lock discipline rnic. BackPressure: the transactions of this pool hold 65,536 views.
  // Timeout: this transaction has taken views for longer than ClientOptions::longest_view_ns.
  // TooLarge: copies of the transaction's own values would take more than a commit may. The views
  // that there are stay good after an error.
  base::Task<Result<std::string_view>> view(TableId table, std::string_view key);
  // Inserts or overwrites at commit. Key and value are copied.
  void put(TableId table, std::string_view key, std::string_view value);
  // Inserts at commit; commit() is AlreadyExists when the key is present.
  void insert(TableId table, std::string_view key, std::string_view value);
  // Erases at commit; commit() is NotFound when the key is absent.
  void erase(TableId table, std::string_view key);
  // The records of an ordered table with keys in `range`, in order or in the opposite order, page
  // by page. Pages have this transaction's own writes, also those made while the scan goes on,
  // where they are ahead of it. The commit validates that no key of what was scanned has appeared,
  // vanished or changed. The transaction outlives the scan.
  TransactionScan scan(TableId table, KeyRange range,
                       ScanDirection direction = ScanDirection::kForward);
  // One record of an ordered table: the first and the last one, also of a range; that of the
  // smallest key greater than `key`, and that of the greatest key smaller than `key`. One round
  // trip each, and one more for each record on the way that this transaction erases. Validated like
  // a scan that ends at this record. NotFound: there is none, and the commit validates that the
  // range is still empty. Other errors as TransactionScan::next(). next() with an empty key is
  // first(); previous() with one is InvalidArgument.
  base::Task<Result<Record>> first(TableId table, KeyRange range);
  base::Task<Result<Record>> last(TableId table, KeyRange range);
  base::Task<Result<Record>> first(TableId table);
  base::Task<Result<Record>> last(TableId table);
  base::Task<Result<Record>> next(TableId table, std::string_view key);
  base::Task<Result<Record>> previous(TableId table, std::string_view key);
  // Erases the first records of the range at commit: at most `limit`, and as many as this
  // transaction has room for. A large range is erased by one transaction after the other, each of
  // which goes on with the `rest` of the one before. TooLarge: there is no room for a single one.
  // Other errors as TransactionScan::next().
  base::Task<Result<ErasedRange>> erase_range(TableId table, KeyRange range, uint32_t limit);
  // Success: all writes are durable and visible, or, without writes, all reads are valid at one
  // moment. The errors are listed at the top of this file. The transaction is over whatever the
  // result; a second commit() is InvalidArgument. A transaction of one read and no writes sends
  // nothing.
  base::Task<Status> commit();
  // Ends the transaction without an effect. Does nothing after commit() was called.
  void abort();
  // The transaction's identity, for outcome(). commit() assigns it to transactions that write; {0,
  // 0} before.
  TxId id() const;

 private:
  friend class Client;
  friend class TransactionScan;
  friend class internal::JointCommit;
  struct State;
  struct Release {
    void operator()(State* state) const;
  };
  using Ref = std::unique_ptr<State, Release>;
  explicit Transaction(Ref state);
  Ref state_;
};

// What Transaction::erase_range() has done.
struct ErasedRange {
  uint64_t erased = 0;    // records
  KeyRange rest;          // what is behind them; not looked at
  bool complete = false;  // no record is left in the range
};

// A scan of an ordered table in a transaction: Transaction::scan(). Move-only. next() may be
// destroyed at any suspension; the scan then stands where it stood before.
class TransactionScan {
 public:
  TransactionScan(TransactionScan&&) noexcept;
  TransactionScan& operator=(TransactionScan&&) noexcept;
  ~TransactionScan();

  // The next records, at most `most` (at least 1) and about 256 KiB, or 1 MiB where the server is
  // in this process; none: the range has ended. Conflict: other transactions keep a part of the
  // range locked. InvalidArgument: the table is not ordered; the transaction is over; a bound of
  // the range is longer than a key. UnknownTable; Damaged; errors of the connection. After an error
  // the transaction cannot commit.
  base::Task<Result<RecordPage>> next(uint32_t most = UINT32_MAX);

 private:
  friend class Transaction;
  struct State;
  explicit TransactionScan(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

struct ScanPage {
  RecordPage records;
  uint64_t cursor = 0;   // of the next page; 0: this is the last page
  uint32_t damaged = 0;  // damaged records skipped, perhaps of other tables: which may be illegible
};
// What a scan does at a record whose checksum is wrong: end with Damaged, or skip and count it.
enum class DamagedRecords : uint8_t { kFail, kSkip };
struct TableInfo {
  TableId id;
  std::string name;
};

// The contents of a table. Changes that other transactions make during the count may be counted or
// not.
struct TableUsage {
  uint64_t records = 0;
  uint64_t key_bytes = 0;
  uint64_t value_bytes = 0;
  uint64_t slot_bytes = 0;  // the records' slots in the pool, with headers and padding
};

struct WriteSize {
  size_t key_bytes = 0;
  size_t value_bytes = 0;
};

// What the client and the server agreed on in the last handshake.
struct SessionInfo {
  std::string uri;
  uint64_t epoch = 0;
  LockDiscipline discipline = LockDiscipline::kCpu;
  persist::PersistCapability persist;
  persist::WriteStrategy log_strategy = persist::WriteStrategy::kTwoSided;
  bool one_sided_reads = false;
  MissPath misses = MissPath::kRpc;  // never kAuto
  bool one_sided_commit = false;
  uint64_t max_redo_bytes = 0;  // the largest transaction's; 0: the server does not say
  uint64_t reconnects = 0;
};

// The accesses that Client::probe() has tried. All of them have succeeded.
struct PoolProbe {
  bool read = false;     // READs of records, lock words and index; false: the client uses none
  bool swapped = false;  // a compare-and-swap of a lock word; under lock discipline rnic
  bool wrote = false;    // a durable write, by SessionInfo::log_strategy; under discipline rnic
};

// A value where it lies in the pool: Client::view(). Move-only. It may outlive the client and the
// server; what value() gives does not. Moved and destroyed on the thread of the executor that the
// server runs on. The frame (docs/glossary.md) of a slot that is kept for it stays in the pool.
class ValueView {
 public:
  ValueView() = default;  // of an empty value
  ValueView(ValueView&& other) noexcept { swap(other); }
  ValueView& operator=(ValueView&& other) noexcept {
    ValueView taken(std::move(other));
    swap(taken);
    return *this;
  }
  // The view ends.
  ~ValueView() {
    if (slots_ != nullptr) end();
  }
  std::string_view value() const { return value_; }

 private:
  friend class internal::ValueRoom;
  void swap(ValueView& other) noexcept {
    std::swap(slots_, other.slots_);
    std::swap(slot_, other.slot_);
    std::swap(value_, other.value_);
  }
  void end();

  std::shared_ptr<internal::ViewedSlots> slots_;  // nullptr: there is no view to end
  SlotOffset slot_{};
  std::string_view value_;
};

class Client {
 public:
  // A read that finds no key trusts for so long that its table still exists: see drop_table().
  static constexpr uint64_t kTableSeenNs = 1'000'000'000;

  // Connects to a server. For local:PATH, when no server of this process listens there, opens the
  // pool PATH, recovers it and serves it on this executor. Errors of Device::connect() and
  // open_pool(); Unsupported: the options ask for more than the server has; VersionMismatch,
  // Protocol: the server's handshake does not fit.
  static base::Task<Result<std::unique_ptr<Client>>> connect(Executor& executor, fabric::Uri uri,
                                                             ClientOptions options);
  // Ends the session in order. Waits for commits that still run, at most
  // ClientOptions::call_timeout_ns; when no outcome is in doubt, the server frees what it keeps for
  // this client. Every later operation is Disconnected. A second call does nothing.
  base::Task<void> close();
  ~Client();

  // The table `name`; with `create` an absent table is created, durably. UnknownTable: it is absent
  // and `create` is false. Otherwise the errors of create_table(), without AlreadyExists.
  base::Task<Result<TableId>> open_table(std::string_view name, bool create = false);
  // Durable on success. AlreadyExists: a table has this name. InvalidArgument: check_table_name()
  // refuses the name. Full: the pool has no room for another table.
  // Unsupported: an ordered one, of a server with lock discipline rnic.
  base::Task<Result<TableId>> create_table(std::string_view name,
                                           TableKind kind = TableKind::kHash);
  // In no particular order.
  base::Task<Result<std::vector<TableInfo>>> list_tables();
  // Deletes the table with all its records; durable on success. The name is then free for a new
  // table; the id is never used again. A write or read with the old id that begins after the drop
  // is UnknownTable; a read that finds no key may be NotFound for at most kTableSeenNs.
  // UnknownTable: no table has this name. Timeout: the table is dropped, but other clients keep
  // records of it locked. After another error, or when the task is destroyed, the table is dropped
  // as a whole or not at all.
  base::Task<Status> drop_table(std::string_view name);
  // Counts the table's records. The server reads the header of every slot, some slots per request.
  // UnknownTable. Conflict: it has moved records during each count in three minutes.
  base::Task<Result<TableUsage>> table_usage(TableId table);
  // How many records the table has. Of an ordered table its index says so at once, and counts keys
  // that transactions are inserting or erasing just now; a hash table is counted as table_usage()
  // does. UnknownTable.
  base::Task<Result<uint64_t>> count_records(TableId table);

  // TooLarge: one transaction with these writes exceeds the server's redo ring, so commit() would
  // refuse it. Answers from the last handshake and sends nothing.
  Status check_room(std::span<const WriteSize> writes) const;

  Transaction begin();

  // Transactions of one operation; errors and durability as Transaction::commit(). Under lock
  // discipline cpu, put(), insert() and erase() take one round trip, and none on a pool in this
  // process (local:PATH). Views are borrowed until the task ends.
  base::Task<Result<std::string>> get(TableId table, std::string_view key);
  base::Task<Result<size_t>> get(TableId table, std::string_view key, std::span<std::byte> into);
  // The value where it lies in the pool, as Transaction::view() gives it, until the ValueView is
  // destroyed or close() is called, whichever comes first. Nothing is validated, and no time is
  // kept: a ValueView that stays keeps a slot from reuse. Errors of Transaction::view() but Timeout
  // and TooLarge.
  base::Task<Result<ValueView>> view(TableId table, std::string_view key);
  // As Transaction::get_many(), and nothing is validated: each value was there at some moment of
  // the call, all of them perhaps at none. Conflict: another transaction keeps a record locked.
  base::Task<Result<Values>> get_many(TableId table, std::span<const std::string_view> keys);
  base::Task<Status> put(TableId table, std::string_view key, std::string_view value);
  base::Task<Status> insert(TableId table, std::string_view key, std::string_view value);
  base::Task<Status> erase(TableId table, std::string_view key);

  // One page of a table's records, in no particular order. The first page has cursor 0, and each
  // page has the cursor of the next. Every record is committed. A record that a transaction
  // inserts, deletes, or moves to a larger slot during the scan may be missed or seen twice; every
  // other record is seen once. Trimmed: the cursor counts no more, because the server has moved
  // records since the first page, or was started; begin again (ScanRepeats). Conflict: a record has
  // been locked for 10 s. Damaged: a record's checksum is wrong and `damaged` is kFail.
  base::Task<Result<ScanPage>> scan(TableId table, uint64_t cursor, uint32_t max_bytes = 256 * 1024,
                                    DamagedRecords damaged = DamagedRecords::kFail);

  // Whether the transaction `id` has committed. The answer is final. CommitUnknown: it is a
  // transaction of this client that still runs; ask again later. OutcomeExpired: the server no
  // longer knows. InvalidArgument: this client has not used that number yet.
  base::Task<Result<Outcome>> outcome(TxId id);

  // Tries every access to the pool that this client may use, and changes no byte: an empty commit;
  // a READ of each region that the server granted; under lock discipline rnic a compare-and-swap of
  // a lock word with its own value, and a durable rewrite of free space of this client's redo ring,
  // during which its commits wait. Ends at the first access that fails, with an error that names
  // it. InvalidArgument: a transaction of this client is committing. The task must not be destroyed
  // before it ends.
  base::Task<Result<PoolProbe>> probe();

  // The server's report, JSON; docs/protocol.md lists its members.
  base::Task<Result<std::string>> server_stat();

  ClientId id() const;  // TxId::client
  const SessionInfo& session() const;
  // The sum over all connections that this client has made.
  fabric::Counters counters() const;
  Executor& executor();
  // The server of a pool that connect() opened (local:PATH), else nullptr. Valid until close().
  Server* local_server();

 private:
  friend class BatchWriter;
  friend class Transaction;
  friend class internal::JointCommit;
  friend class internal::Settlement;
  struct State;
  explicit Client(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Runs `body(Transaction&) -> Task<Status>` and commits. Repeats this while the result is Conflict,
// at most `attempts` times in all, with randomised exponential back-off (1 us to 1 ms).
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
