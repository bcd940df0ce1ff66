// Server: serves one pool to clients over any number of fabrics.
//
// Threads: one executor, and all calls on its thread. Lifetimes: pool and executor outlive it.
// start() recovers the pool (docs/recovery.md) before the server accepts a connection. Durability:
// the server acknowledges a commit only after the transaction is durable. When the pool has a log
// area, the server also serves its logs (docs/log-service.md), on the same listeners.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/executor.h"
#include "base/result.h"
#include "base/task.h"
#include "base/workers.h"
#include "fabric/device.h"
#include "fabric/rpc.h"
#include "fabric/uri.h"
#include "persist/pool.h"
#include "persist/strategy.h"
#include "pmstore/types.h"
#include "service/session_observer.h"

namespace pmstore {

namespace service {
class Host;
}

namespace internal {
class StoreCalls;
struct Embedded;
}  // namespace internal

// The division of a new pool.
struct FormatOptions {
  // Redo rings: the most clients that write at the same time under lock discipline rnic. They are
  // made when clients first commit, if the pool has room: records leave room for the first ones
  // only. 0: the pool can only be served under discipline cpu.
  uint32_t rings = 32;
  // Size of one redo ring; a transaction's redo record takes at most half of it. 0: pool / 128,
  // between 64 KiB and 4 MiB, and at least 2.25 MiB in pools of 240 MiB or more.
  uint64_t ring_bytes = 0;
  uint64_t identity = 0;  // the pool's; 0: random. Tests give one, so that their runs are the same
  // So much the pool has for logs from the beginning, in one extent (log/log_store.h). Logs take
  // more of the pool when they need it; 0: all of what they get.
  uint64_t log_bytes = 0;
  // Size of the extent for file data; 0: none. Room is made for it here, and fs/file_area.h formats
  // it.
  uint64_t file_bytes = 0;
  static constexpr uint64_t kLeastFileBytes = uint64_t{1} << 20;
  std::vector<std::string> tables = {};  // the first tables; a repeated name is one table
  // Records take space from the pool in pieces of this size, a power of two. Each piece is an
  // extent of the pool. 0: between a 32nd and a 16th of the pool, at least 4 MiB. A larger record
  // than a piece does not fit. For tests; the usual size is right for every pool.
  uint64_t frame_bytes = 0;
  // Size of the shard log, where transactions of all clients are logged under discipline cpu; a
  // transaction's redo record takes a little less than half of it, and at most 2 MiB. 0: pool / 32,
  // between 64 KiB and 16 MiB.
  uint64_t shard_log_bytes = 0;
  // Records begin with at least so much, in one extent that stays theirs; rounded up to whole
  // pieces where the pool has room for that. 0: one piece.
  uint64_t record_bytes = 0;
};

// Writes the store's catalog into a new pool and allocates its extents. Durable on return. Full:
// rings, logs and records do not fit. InvalidArgument: the log area is too small for one log, or
// no table can have one of the names.
Status format_store(persist::Pool& pool, const FormatOptions& options);
// InvalidArgument: format_store() would refuse these options for every pool. For callers that
// delete an old pool before they format the new one.
Status check_format(const FormatOptions& options);

// Pool::open() for a server. Also refuses a pool that Server::start() would refuse, and leaves the
// file as it is then; check_startable() in pmstore/check.h and load_space_rules() have the
// conditions.
Result<std::unique_ptr<persist::Pool>> open_pool(const std::string& path,
                                                 persist::PoolOpenOptions options);

struct RecoveryReport {
  uint64_t rings_replayed = 0;
  uint64_t entries_read = 0;           // redo entries; the records of most are in their slots
  uint64_t transactions_replayed = 0;  // entries with a record that was not in its slot
  uint64_t records_applied = 0;        // records that were newer in a ring than in their slots
  uint64_t live_records = 0;
  uint64_t tombstones = 0;       // with the records of dropped tables
  uint64_t foreign_entries = 0;  // ring entries with a right checksum that are no redo records
  uint64_t damaged_records = 0;  // records with a wrong checksum that no redo entry repairs
  // The store came from the checkpoint of an orderly stop, and no slot was read.
  bool from_checkpoint = false;
  std::string checkpoint_refused;  // why a checkpoint that there was did not count; else empty
  uint64_t duration_us = 0;
};

// How a start reads the records of a pool.
struct RecoveryOptions {
  // The threads that read; nullptr: the calling one. Outlives the start.
  base::Workers* workers = nullptr;
  // Is told, in the calling thread and a few times per second, how many of the slots were read.
  std::function<void(uint64_t slots_read, uint64_t slots)> progress = {};
  // No byte of a checkpoint is read: all records are, and its space is freed. For a medium that
  // reports an error where the checkpoint lies, which ends the process that reads it.
  bool ignore_checkpoint = false;
};

struct ServerOptions {
  // nullopt: rnic when the fabric has device atomics, one-sided writes can be made durable and a
  // device moves the data; otherwise cpu.
  std::optional<LockDiscipline> discipline;
  // Where an RNIC's writes arrive when a device moves the data. The default assumes that DDIO is
  // on, which is safe in both cases.
  persist::WriteLanding device_landing = persist::WriteLanding::kLastLevelCache;
  // Under discipline rnic: clients may WRITE records in place; false: the server applies commits.
  bool one_sided_commit = true;
  // A session that has a lease, and sends no request for so long, is fenced (docs/protocol.md).
  uint32_t lease_ms = 5000;
  // Under discipline rnic the server keeps the outcomes of a client that has vanished for this
  // time, within the bounds of docs/limits.md; a restart begins the time anew. They are durable
  // until a new client needs the vanished client's ring because all rings are owned; from then on
  // they are in DRAM, and a restart loses them (OutcomeExpired). When the time is over, the ring is
  // given back. Under cpu the shard log keeps them, within those bounds.
  uint32_t outcome_retention_ms = 30'000;
  // Under discipline cpu in a pool in a file: transactions that wait at the same time share an
  // msync when the last two took at least so long. Below it, a group costs more than it saves.
  uint64_t group_above_ns = 20'000;
  // Under discipline cpu: a transaction of several servers that has locked records here, and was
  // not prepared for so long, is given up.
  uint32_t lock_ms = 1000;
  // So many clients may be connected at the same time; under discipline rnic, at most 32,767, and
  // as many may write as the pool has rings.
  uint32_t most_clients = 4096;
  // So many bytes of memory may the requests and answers of all clients take together, at least
  // 64 MiB. While they take more, no new client is let in, and silent ones that hold some are
  // fenced (docs/service.md).
  uint64_t message_bytes = uint64_t{1} << 30;
  // Extents of records take no more of the pool than so many bytes together, those of logs no more
  // than so many, and the file area has no more than so many: what needs another extent is Full
  // then. What they have already stays, also above the limit. UINT64_MAX: no limit; nullopt: what
  // the pool keeps (persist/kept_space_rules.h).
  std::optional<uint64_t> most_record_bytes;
  std::optional<uint64_t> most_log_bytes;
  std::optional<uint64_t> most_file_bytes;
  // Extents of other kinds leave so many bytes of the pool to this kind, with what it has already;
  // else they are Full. nullopt: what the pool keeps.
  std::optional<uint64_t> record_reserve_bytes;
  std::optional<uint64_t> ring_reserve_bytes;
  std::optional<uint64_t> log_reserve_bytes;
  std::optional<uint64_t> file_reserve_bytes;
  RecoveryOptions recovery = {};
  fabric::RpcOptions rpc;
  // Opens the devices of listen(): a host of the modelled machine. nullptr: this machine. Outlives
  // the server.
  fabric::DeviceOpener* devices = nullptr;
  // Is told when sessions begin and end, for the log of a daemon; may be nullptr. Outlives the
  // server.
  SessionObserver* observer = nullptr;
};

class Server {
 public:
  // Recovers the pool first. BadPool: the pool has no store, or its catalog is damaged.
  // InvalidArgument: SpaceRules::check() of what the options and the pool say together.
  static base::Task<Result<std::unique_ptr<Server>>> start(Executor& executor, persist::Pool& pool,
                                                           const ServerOptions& options);
  ~Server();

  // Accepts connections at `uri` and returns the address that clients use (a port 0 is replaced by
  // the port in use). May be called for several fabrics. Unsupported: the lock discipline does not
  // fit the fabric.
  base::Task<Result<fabric::Uri>> listen(fabric::Uri uri);
  // Stops accepting, ends and resolves all sessions, and marks the pool as cleanly closed, durably.
  // Io, Timeout: the pool is not marked; nothing acknowledged is lost, and the next start recovers.
  base::Task<Status> stop();

  // For services beside store and logs: they are added before the first listen(), and outlive this
  // server.
  service::Host& host();
  // Adds the member `name` to stat_json(), with what `json` gives then.
  void extend_stat(std::string name, std::function<std::string()> json);

  const RecoveryReport& recovery() const;
  // After stop(): why it left no checkpoint, so that the next start reads all records; empty when
  // it left one.
  const std::string& no_checkpoint() const;
  LockDiscipline discipline() const;
  // Sessions, records, free bytes and counters, JSON; `logs` has the log service's when the pool
  // has a log area.
  std::string stat_json() const;
  // The damage that the log service has found, one line each; empty without a log area.
  std::vector<std::string> damaged_logs() const;
  // Changes ServerOptions::outcome_retention_ms, also for clients that have already vanished.
  void set_outcome_retention_ms(uint32_t milliseconds);

 private:
  friend struct internal::Embedded;
  std::unique_ptr<internal::StoreCalls> direct_calls(ClientId client,
                                                     std::shared_ptr<const uint64_t> known_through);
  struct State;
  explicit Server(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pmstore
