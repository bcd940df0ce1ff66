// EmbeddedLog: the logs of a pool in this process, for clients of local:PATH. Opens the pool that
// pmstored would serve, serves its logs on the local fabric under a name of its own, and does not
// touch the store in it.
//
// Threads: one executor, all calls on its thread. Lifetimes: the executor outlives it; it outlives
// its clients. Nobody else can open the pool meanwhile (Busy there).
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/executor.h"
#include "base/result.h"
#include "base/task.h"
#include "fabric/uri.h"
#include "log/log_types.h"
#include "persist/domain.h"

namespace pmstore::log {

struct EmbeddedLogOptions {
  // Treat the memory as this domain instead of the one detected; for benchmarks.
  std::optional<persist::Domain> assume_domain;
};

class EmbeddedLog {
 public:
  // Errors of Pool::open() and LogStore::open(); BadPool: load_space_rules(). A pool that is
  // refused is untouched. Logs go by the reserves and limits that the pool keeps.
  static base::Task<Result<std::unique_ptr<EmbeddedLog>>> open(base::Executor& executor,
                                                               std::string path,
                                                               EmbeddedLogOptions options);
  // Stops in order: what was landed is walked and durable.
  ~EmbeddedLog();

  // Where clients of this process connect to.
  const fabric::Uri& uri() const;
  // A shared append without messages, durable on return, and so is what others have appended
  // before. Errors of LogStore::append() and commit_appends().
  Result<Appended> append(uint64_t log, std::span<const std::span<const std::byte>> payloads);
  // LogStore::append_durable().
  std::optional<Appended> append_one(uint64_t log, std::span<const std::byte> payload);

 private:
  struct State;
  explicit EmbeddedLog(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pmstore::log
