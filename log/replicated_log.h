// ReplicatedLog: the exclusive producer of a log that n servers have, entry for entry, at the same
// LSNs. An append returns when every replica has it. docs/log-replication.md has the protocol.
//
//   auto log = executor.run(ReplicatedLog::open(executor, "orders", {"tcp://a:7000"}, {}));
//   auto at = executor.run((*log)->append(payload));  // durable on every replica on return
//
// Servers do not talk to each other: whoever opens the log is its coordinator. It has the lease of
// every replica, makes them equal, and records each change of the members on all that stay.
//
// Threads: one executor's; many coroutines may append at the same time. Lifetimes: the executor
// outlives it; every append has returned, or its coroutine was destroyed, before it is destroyed
// and before any other call. After an append whose coroutine was destroyed every further one fails:
// open the log again.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/executor.h"
#include "base/result.h"
#include "base/task.h"
#include "fabric/capabilities.h"
#include "log/log_client.h"
#include "log/log_producer.h"
#include "log/log_reader.h"
#include "log/log_types.h"

namespace pmstore::log {

struct ReplicatedLogOptions {
  LogClientOptions client;      // of the session with each server
  LogProducerOptions producer;  // takeover, strategy; `replica` is its own
  // Members to go on without: recorded on all that stay, before anything is appended. They must be
  // a majority, or half of them with the first one, and one of them must know that all had recorded
  // the membership before, which is so unless a change was interrupted; with `dropped_are_gone` any
  // will do: then the caller vouches that those dropped will never be asked again, and, where a
  // change was interrupted, that they have not gone on with somebody who is not named either.
  std::vector<std::string> drop;
  bool dropped_are_gone = false;
};

// One server's answer about a log.
struct ReplicaStatus {
  std::string uri;
  Result<LogInfo> info;
  bool current = false;  // all members of its membership say the same
};

struct ReplicatedLogStatus {
  // The one that is agreed upon; else the one with the highest number that anybody says; 0: nobody
  // says any.
  uint64_t membership = 0;
  std::vector<std::string> replicas;
  uint64_t identity = 0;               // of the log that counts (LogInfo::identity)
  bool agreed = false;                 // all have recorded it, and one of them knows that
  std::optional<Error> why_not;        // not agreed; none: a change was interrupted, open() ends it
  std::vector<ReplicaStatus> servers;  // those named first, then those that they name
};

// Where to trim to: one of the two.
struct TrimPlace {
  uint64_t through_lsn = 0;
  uint64_t below_index = 0;
};

class ReplicatedLog {
 public:
  // Makes it on all servers. What a create before has left half made is finished, with the identity
  // that it was given then. AlreadyExists;
  // InvalidArgument, also when two of them are the same pool; errors of LogClient::create(), with
  // the server's name. Nothing is made before all have been reached.
  static base::Task<Status> create(base::Executor& executor, std::string name, LogOptions options,
                                   std::vector<std::string> replicas, ReplicatedLogOptions how);
  // Takes it over. `servers`: at least one of those that have it; the others are found. All members
  // must be there, but those to be dropped. On return they are equal, and everything that was
  // acknowledged is there. Disconnected, Timeout (says which member); Busy (kIfFree); Fenced;
  // Conflict (no membership is agreed upon, too few would stay, or servers have different logs of
  // that name, and it is not known which is meant); Sealed (also when a seal has not got to all
  // members: repeat it); BackPressure (a member that lags has no room: trim it); NotFound; Damaged.
  // `only_if_gone`, when given, is told whether it failed because `dropped_are_gone` was not set;
  // borrowed until the task has ended.
  static base::Task<Result<std::unique_ptr<ReplicatedLog>>> open(base::Executor& executor,
                                                                 std::string name,
                                                                 std::vector<std::string> servers,
                                                                 ReplicatedLogOptions options,
                                                                 bool* only_if_gone = nullptr);
  // Asks all servers that these, and what they say, name; takes nothing over.
  static base::Task<ReplicatedLogStatus> status(base::Executor& executor, std::string name,
                                                std::vector<std::string> servers,
                                                LogClientOptions options);
  // On every replica; also while another one appends: what goes was acknowledged. The new start.
  // May have been done on some when it fails; repeating it does the rest. Errors of open() and
  // LogClient::trim(), with the server's name.
  static base::Task<Result<uint64_t>> trim(base::Executor& executor, std::string name,
                                           std::vector<std::string> servers, TrimPlace until,
                                           LogClientOptions options);
  // Takes it over and seals every replica, the first one first. When that fails half-way the log is
  // ended all the same: nothing more can be appended, all that was acknowledged is on every
  // replica, readers of those not yet sealed are not told of the end. Repeating it finishes it.
  static base::Task<Status> seal(base::Executor& executor, std::string name,
                                 std::vector<std::string> servers, ReplicatedLogOptions options);
  // Deletes every replica. All members must be there, but those that do not have it any more:
  // repeating one that failed half-way finishes it. Busy while a producer has it.
  static base::Task<Status> erase(base::Executor& executor, std::string name,
                                  std::vector<std::string> servers, LogClientOptions options);
  ~ReplicatedLog();

  // Durable on every replica on return. Nothing was written: BackPressure (no room, or an append
  // before it that was under way was refused), TooLarge, InvalidArgument. Else some may have it:
  // CommitUnknown, Fenced; nothing more is appended then: open again, without the one that the
  // message names if it is lost, and compare next_index().
  base::Task<Result<Appended>> append(std::span<const std::byte> payload);
  // All of them, one round trip; gives the last.
  base::Task<Result<Appended>> append_batch(std::span<const std::span<const std::byte>> payloads);

  // A new member, which gets what the log has. InvalidArgument: it is a member, perhaps by another
  // name; AlreadyExists: it has a log of that name. With `replace` that one is deleted first when
  // it is what a member that was dropped still has of this log (Conflict: it is not).
  base::Task<Status> add(std::string uri, bool replace = false);
  // On every replica.
  base::Task<Status> trim_below_index(uint64_t index);
  // Readers see everything that was acknowledged.
  base::Task<Status> publish();
  // Publishes, gives the leases back; then nothing more is appended.
  base::Task<Status> close();
  // The same, and seals every replica; the other seal() says what holds when it fails.
  base::Task<Status> seal();

  uint64_t next_index() const;
  uint64_t tail_lsn() const;
  persist::WriteStrategy strategy() const;  // in force with the first member
  uint64_t membership() const;
  std::vector<std::string> replicas() const;
  fabric::Counters counters() const;  // of the producers' connections, together

 private:
  struct State;
  explicit ReplicatedLog(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// A session with a replica that is current, for reading: every other member of its membership has
// said the same. It goes on to serve what was acknowledged when it is dropped later, but nothing
// newer.
struct CurrentReplica {
  std::unique_ptr<LogClient> client;
  LogInfo info;
};
// The first of `servers` that is. Conflict: none; Disconnected, Timeout: a member cannot be asked,
// so it is not known.
base::Task<Result<CurrentReplica>> open_current_replica(base::Executor& executor, std::string name,
                                                        std::vector<std::string> servers,
                                                        LogClientOptions options);

// For a `reader` of the replica `at` whose follow() has given Conflict or InvalidArgument: the
// replica was dropped, and perhaps deleted or added again since. Finds one that is current, among
// `servers` and those that `at` has named; then both are of that one, and the reader goes on where
// it was. When it fails, both are as before: InvalidArgument when that one has another log of that
// name, or knows of no newer members than `at`, which so was not dropped: the log was deleted, and
// perhaps made again (so one who moves again and again ends); errors of open_current_replica() and
// LogReader::open().
base::Task<Status> move_to_current_replica(std::vector<std::string> servers,
                                           LogClientOptions options, CurrentReplica& at,
                                           std::unique_ptr<LogReader>& reader);

}  // namespace pmstore::log
