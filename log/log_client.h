// LogClient: a client's session with the logs of one server, or of a pool in this process.
//
//   auto client = executor.run(LogClient::connect(executor, *fabric::parse_uri("tcp://db:7000"),
//   {})); auto log = executor.run((*client)->create("orders", {})); auto at =
//   executor.run((*client)->append(log->id, payload));   // durable on return
//
// append() here is the shared producers': by RPC, in one order for everybody, several clients'
// entries made durable together. For one-sided appends take the log over with a LogProducer
// (log/log_producer.h). LogReader (log/log_reader.h) reads.
//
// Threads: one client belongs to one executor; many coroutines may use it at the same time.
// Lifetimes: the executor outlives the client; the client outlives its producers and readers.
// A client whose session is lost makes another one at its next call, also when its server was
// restarted meanwhile; its readers go on where they are, its producers are to be opened again.
// Errors of all calls: Disconnected, Timeout (the server is away), Protocol; Disconnected also when
// another pool is served there by now. An append whose answer was lost is repeated, and the server
// executes it once. When the server has been restarted it cannot tell, or when it stays away, the
// append is CommitUnknown: look at the entries behind the log's earlier next index.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/executor.h"
#include "base/result.h"
#include "base/task.h"
#include "fabric/capabilities.h"
#include "fabric/device.h"
#include "fabric/rpc.h"
#include "fabric/uri.h"
#include "log/log_protocol.h"
#include "log/log_types.h"
#include "persist/domain.h"
#include "service/identity.h"

namespace pmstore::log {

struct LogClientOptions {
  ClientSecret secret;  // empty: random; its id is that of the client
  uint64_t call_timeout_ns = 5'000'000'000;
  uint64_t connect_timeout_ns = 5'000'000'000;
  // An operation tries so long to reach a server that does not answer, and an append to learn
  // whether it was executed; 0: it tries once.
  uint64_t reconnect_timeout_ns = 0;
  fabric::RpcOptions rpc;
  // nullptr: this machine; else a host of the modelled machine. Borrowed.
  fabric::DeviceOpener* devices = nullptr;
  // A pool that is opened here (local:PATH, and no server of this process has it): treat its memory
  // as this domain instead of the one detected; for benchmarks.
  std::optional<persist::Domain> assume_domain;
};

class LogClient {
 public:
  // Errors of Device::connect; Unsupported when the server has no logs. With local:PATH, where no
  // server of this process listens: opens the pool here; errors of EmbeddedLog::open().
  static base::Task<Result<std::unique_ptr<LogClient>>> connect(base::Executor& executor,
                                                                fabric::Uri uri,
                                                                LogClientOptions options);
  ~LogClient();

  // AlreadyExists, Full, InvalidArgument. Durable on return.
  base::Task<Result<LogInfo>> create(std::string_view name, const LogOptions& options);
  // One replica's part; log/replicated_log.h does that for all of them. With the identity in
  // `options`, also when that is 0.
  base::Task<Result<LogInfo>> create_replica(std::string_view name, const LogOptions& options,
                                             const ReplicaPlace& replica);
  // NotFound.
  base::Task<Result<LogInfo>> open(std::string_view name);
  base::Task<Result<std::vector<LogInfo>>> list();
  // Durable on return. Sealed; Busy while a producer is exclusive; BackPressure; TooLarge.
  // Payloads are borrowed until the task is done.
  base::Task<Result<Appended>> append(uint64_t log, std::span<const std::byte> payload);
  // All or none of them, one after the other; gives the last. 1 to kMaxBatchEntries.
  base::Task<Result<Appended>> append_batch(uint64_t log,
                                            std::span<const std::span<const std::byte>> payloads);
  // The same without a coroutine, where there is nothing to wait for: where this session has opened
  // the pool in its process (local:PATH). Elsewhere it gives nothing, and does nothing. Who appends
  // so all the time lets the executor run now and then.
  std::optional<Result<Appended>> append_at_once(
      uint64_t log, std::span<const std::span<const std::byte>> payloads);
  // Entries below go; gives the new start. InvalidArgument when no entry starts there.
  base::Task<Result<uint64_t>> trim(uint64_t log, uint64_t through_lsn);
  base::Task<Result<uint64_t>> trim_below_index(uint64_t log, uint64_t index);
  base::Task<Status> seal(uint64_t log);
  base::Task<Status> erase(uint64_t log);

  ClientId id() const;
  uint64_t area()
      const;  // identity of the server's log area: two sessions with one pool say the same
  const fabric::Uri& uri() const;
  fabric::Counters counters() const;  // of the connections of all its sessions
  uint64_t reconnects() const;
  base::Executor& executor();

 private:
  friend class LogProducer;
  friend class LogReader;
  friend class ReplicatedLog;
  struct State;
  explicit LogClient(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pmstore::log
