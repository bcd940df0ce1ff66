// Server: serves one pool to clients over any number of fabrics.
//
// Threads: one executor, all calls on its thread. Lifetimes: pool and executor outlive it. start()
// recovers the pool (docs/recovery.md) before any connection is accepted. What is durable: nothing
// is answered as committed before it is. A pool with a log area has its logs served as well
// (docs/log-service.md), on the same listeners.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/executor.h"
#include "base/result.h"
#include "base/task.h"
#include "fabric/device.h"
#include "fabric/rpc.h"
#include "fabric/uri.h"
#include "log/session_observer.h"
#include "persist/pool.h"
#include "persist/strategy.h"
#include "pmstore/types.h"

namespace pmstore {

// How a new pool is divided.
struct FormatOptions {
  uint32_t rings = 32;      // clients at the same time, at most
  uint64_t ring_bytes = 0;  // per client; 0: pool / 128, 64 KiB to 4 MiB, from pools of 240 MiB on
                            // at least 2.25 MiB. Bounds a transaction to half of it
  uint64_t identity = 0;    // of the pool; 0: random. Tests give one, so that runs are the same
  // For logs (log/log_store.h); kDefaultLogBytes: pool / 8, none in pools below 64 MiB; 0: none.
  // The records take what is left.
  static constexpr uint64_t kDefaultLogBytes = UINT64_MAX;
  uint64_t log_bytes = kDefaultLogBytes;
  std::vector<std::string> tables = {};  // that it begins with; a name may come twice
};

// Writes the store's catalog into a new pool and allocates its extents; durable on return.
// Full when rings, logs and records do not fit. InvalidArgument for a log area too small for a log
// and for names that no table can have.
Status format_store(persist::Pool& pool, const FormatOptions& options);
// InvalidArgument for what format_store() would refuse whatever the pool is. For callers that
// destroy something first.
Status check_format(const FormatOptions& options);

// Pool::open() for a server; a pool that start() would refuse is refused here, with the file
// untouched (pmstore/check.h has what is looked at).
Result<std::unique_ptr<persist::Pool>> open_pool(const std::string& path,
                                                 persist::PoolOpenOptions options);

struct ServerOptions {
  // nullopt: rnic where the fabric has device atomics, one-sided writes are durable and a device
  // moves the data; else cpu.
  std::optional<LockDiscipline> discipline;
  // How the RNIC's writes land when a device moves the data. Default: assume DDIO is on, the safe
  // answer.
  persist::WriteLanding device_landing = persist::WriteLanding::kLastLevelCache;
  // Under discipline rnic: clients may WRITE records in place (else the server applies).
  bool one_sided_commit = true;
  uint32_t lease_ms = 5000;  // a session silent this long is fenced
  // A vanished client's outcomes are kept this long, within the bounds of docs/limits.md; durably
  // until a new client needs its ring because all rings are owned, then in DRAM: a restart loses
  // those (OutcomeExpired).
  uint32_t outcome_retention_ms = 30'000;
  fabric::RpcOptions rpc;
  // Where listen() gets its devices: a host of the modelled machine. nullptr: this machine.
  // Borrowed for the server's life.
  fabric::DeviceOpener* devices = nullptr;
  SessionObserver* observer = nullptr;  // borrowed; told of sessions, for the log of a daemon
};

struct RecoveryReport {
  uint64_t rings_replayed = 0;
  uint64_t entries_read = 0;           // of the rings; most are in place
  uint64_t transactions_replayed = 0;  // entries of which something was not in place
  uint64_t records_applied = 0;        // were newer than what was in place
  uint64_t live_records = 0;
  uint64_t tombstones = 0;       // and records of dropped tables
  uint64_t foreign_entries = 0;  // in a ring with a right checksum, but not redo records; skipped
  uint64_t damaged_records = 0;  // checksum wrong and no log entry to repair it
  uint64_t duration_us = 0;
};

class Server {
 public:
  // Recovers. BadPool when the pool has no store or its catalog is damaged.
  static base::Task<Result<std::unique_ptr<Server>>> start(Executor& executor, persist::Pool& pool,
                                                           const ServerOptions& options);
  ~Server();

  // Starts accepting on `uri`; gives where it really listens. May be called for several fabrics.
  // Unsupported when the discipline does not fit the fabric.
  base::Task<Result<fabric::Uri>> listen(fabric::Uri uri);
  // Stops accepting, ends all sessions, resolves them and marks the pool as cleanly closed. Io,
  // Timeout: the pool is not marked so, nothing acknowledged is lost, and the next start recovers.
  base::Task<Status> stop();

  const RecoveryReport& recovery() const;
  LockDiscipline discipline() const;
  // Sessions, records, free bytes, counters; `logs` with the log service's, where the pool has a
  // log area.
  std::string stat_json() const;
  // What the log service has found damaged, one line each; empty without a log area.
  std::vector<std::string> damaged_logs() const;
  // From now on, also for clients that have vanished before.
  void set_outcome_retention_ms(uint32_t milliseconds);

 private:
  struct State;
  explicit Server(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pmstore
