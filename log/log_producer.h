// LogProducer: the exclusive producer of one log. Appends one-sided where the hardware makes that
// durable: k entries are one doorbell, one round trip, no message to the server.
//
// It has a connection of its own. The server fences a producer by destroying that connection's
// queue pair: when another one steals the lease, or when this one was silent for the lease's time
// (it renews by itself). Then every append fails with Fenced, also those in flight, and nothing of
// them lands any more.
//
// Readers see entries below the published tail. It rides, as a WRITE to the server's DRAM, in front
// of the next append; when none follows within `publish_delay_ns`, it is posted by itself.
//
// Threads: those of the client. Lifetimes: the client outlives it; every append has returned, or
// its coroutine was destroyed, before the producer is destroyed. After an append whose coroutine
// was destroyed every further one fails, as after any append that may or may not be there: open a
// producer again. Appends are ordered by their calls.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "base/task.h"
#include "log/log_client.h"
#include "log/log_types.h"
#include "persist/strategy.h"

namespace pmstore::log {

struct LogProducerOptions {
  Takeover takeover = Takeover::kIfFree;
  persist::WriteStrategy strategy = persist::WriteStrategy::kAuto;
  uint32_t staging_bytes = 4u << 20;  // bounds the sum of the entries in flight
  uint64_t publish_delay_ns = 20'000;
  // Of a ReplicatedLog, which has one producer for each replica: what was appended here counts as
  // acknowledged, and is published, when acknowledge() says so.
  bool replica = false;
  // Of a replica: the membership that the producer was opened for. The server compares it with its
  // own in the turn in which it grants the lease; Conflict when they differ.
  uint64_t membership = 0;
};

class LogProducer {
 public:
  // Busy while another's lease runs (kIfFree); Sealed; NotFound; Unsupported (strategy; a
  // replicated log, which wants a ReplicatedLog).
  static base::Task<Result<std::unique_ptr<LogProducer>>> open(LogClient& client, uint64_t log,
                                                               LogProducerOptions options);
  // Gives the lease back when close() was not called, too: the connection goes.
  ~LogProducer();

  // Durable on return. Nothing was written: BackPressure, TooLarge, InvalidArgument (empty),
  // Sealed, the error of the append that failed before. CommitUnknown: the connection broke; the
  // entry may or may not be there; open a producer again and compare next_index(). Fenced: another
  // one has the log; the same holds.
  base::Task<Result<Appended>> append(std::span<const std::byte> payload);
  // Gather: one entry of several pieces.
  base::Task<Result<Appended>> append_gather(std::span<const std::span<const std::byte>> pieces);
  // Several entries, one doorbell, one round trip; after a crash any prefix of them may be there,
  // all of them once this has returned. Gives the last.
  base::Task<Result<Appended>> append_batch(std::span<const std::span<const std::byte>> payloads);

  // ---- of a replica ----

  // append_batch() when the first of them gets this index, else Conflict: nothing was written.
  base::Task<Result<Appended>> append_batch_at(std::span<const std::span<const std::byte>> payloads,
                                               uint64_t first_index);
  // Every replica has everything below.
  void acknowledge(uint64_t lsn);
  // Records who the replicas are from now on, durably. Conflict when the membership is not
  // `expected`.
  base::Task<Status> set_membership(uint64_t expected, const ReplicaPlace& replica);
  // Notes, durably, that every replica has recorded that membership. Conflict when this one has
  // not.
  base::Task<Status> agree(uint64_t membership);
  // Is this still the producer of its log? Asks the server.
  base::Task<Result<bool>> holds_lease();

  // Publishes the tail now and waits until it is.
  base::Task<Status> publish();
  // Waits for the calls that are under way, publishes, gives the lease back. No append or publish()
  // begins from its call on: they get Disconnected. Busy while another close() is under way.
  base::Task<Status> close();

  uint64_t next_index() const;
  uint64_t tail_lsn() const;  // behind what was acknowledged; of a replica, what is durable here
  persist::WriteStrategy strategy() const;  // in force
  fabric::Counters counters() const;        // of its own connection

 private:
  struct State;
  explicit LogProducer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pmstore::log
