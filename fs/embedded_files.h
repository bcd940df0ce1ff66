// EmbeddedFiles: the files of a pool in this process, for clients of local:PATH. Opens the pool
// that pmstored would serve, and serves its files on the local fabric under a name of its own.
//
// Threads: one executor, all calls on its thread. Lifetimes: the executor outlives it; it outlives
// its clients. Nobody else can open the pool meanwhile (Busy there).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/executor.h"
#include "base/result.h"
#include "base/task.h"
#include "fabric/uri.h"
#include "persist/domain.h"

namespace pmstore::fs {

struct EmbeddedFilesOptions {
  // Treat the memory as this domain instead of the one detected; for benchmarks.
  std::optional<persist::Domain> assume_domain;
};

class EmbeddedFiles {
 public:
  // Errors of open_pool(), Server::start() and FilesServer::start(); Unsupported when the pool has
  // no file area.
  static base::Task<Result<std::unique_ptr<EmbeddedFiles>>> open(base::Executor& executor,
                                                                 std::string path,
                                                                 EmbeddedFilesOptions options);
  // Ends everything as a crash would; what was acknowledged is durable.
  ~EmbeddedFiles();
  // Stops in order, so that the next start is fast, when the space of removed files is free. After
  // that, only the destructor.
  base::Task<void> close();

  // Where clients of this process connect to.
  const fabric::Uri& uri() const;

 private:
  struct State;
  explicit EmbeddedFiles(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pmstore::fs
