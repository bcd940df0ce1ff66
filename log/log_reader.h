// LogReader: reads one log one-sided, from any entry on, and follows it.
//
// It sees only entries below the published tail, which are durable on every replica: never a hole,
// a torn entry, or one that a crash takes back. What it READ counts only when the log's words, READ
// behind it, say that it was still the log's and not yet trimmed. The tail is one READ away.
//
// Threads: those of the client. Lifetimes: the client outlives it. One call at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "base/task.h"
#include "log/log_client.h"
#include "log/log_types.h"

namespace pmstore::log {

struct LogReaderOptions {
  uint32_t window_bytes = 64u << 10;  // READ at a time; grows for larger entries
  // Words, window and words again in one doorbell, where the fabric orders READs. Off, as on a
  // fabric that does not: one after the other.
  bool one_doorbell = true;
  // How long follow() waits between looks: from the first to the second, doubling.
  uint64_t min_poll_ns = 5'000;
  uint64_t max_poll_ns = 1'000'000;
  // The log is replicated, and it is known that this replica is current (log/replicated_log.h).
  bool current_replica = false;
  // Then follow() asks the members, when nothing has come for so long, whether it still is ...
  uint64_t ask_members_ns = 2'000'000'000;
  // ... and gives up when they could not all be asked for so long.
  uint64_t unknown_ns = 30'000'000'000;
  // For making replicas equal: entries up to here are read although nobody has published them.
  uint64_t unpublished_to_lsn = 0;
};

struct LogEntry {
  uint64_t lsn = 0;
  uint64_t next_lsn = 0;
  uint64_t index = 0;
  std::span<const std::byte> payload;  // until the reader's next call
};

class LogReader {
 public:
  // Starts at the oldest entry. NotFound; Damaged when nothing of the log is left (is_lost());
  // Unsupported for a replicated log without current_replica.
  static base::Task<Result<std::unique_ptr<LogReader>>> open(LogClient& client, uint64_t log,
                                                             LogReaderOptions options);
  ~LogReader();

  // Where next() goes on. `lsn` is one that was returned before, or 0 for the oldest entry.
  void seek(uint64_t lsn);
  // Behind the newest entry that is published now.
  base::Task<Status> seek_to_tail();

  // The next entry. NotFound at the tail (Sealed when there will never be more); Trimmed when it is
  // gone: seek(start_lsn()) goes on; Damaged when it was lost: skip_damaged() goes on;
  // InvalidArgument when the log was deleted. Errors of the session.
  base::Task<Result<LogEntry>> next();
  // The same, but waits at the tail up to `timeout_ns` (Timeout), and while members are asked as
  // long as a connect takes. Conflict: this replica was dropped, and nothing new comes here: open
  // another (open_current_replica()), and seek(position()). InvalidArgument when the log was
  // deleted here, as a dropped replica is before it is added again, or by all the others.
  // Disconnected: for unknown_ns the members could not tell; it names the one that could not be
  // asked, or says that a change of theirs was interrupted, which opening the log finishes.
  base::Task<Result<LogEntry>> follow(uint64_t timeout_ns);
  // Looks for the next whole entry and stands before it, or at the tail.
  base::Task<Result<DamagedRange>> skip_damaged();

  uint64_t position() const;   // LSN of what next() gives, or of a pad before it; 0 after seek(0)
  uint64_t start_lsn() const;  // as last seen
  uint64_t tail_lsn() const;   // as last seen

 private:
  struct State;
  explicit LogReader(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pmstore::log
