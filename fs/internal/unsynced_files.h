// UnsyncedFiles: the files of which a client has written bytes that are visible and not durable yet
// (DataSync::kFsync), and how they become durable: by one step at each data server.
//
// A server that was started again may have lost what it had not made durable. That is a loss: it is
// counted for the file, and each open descriptor tells it once.
// Invariants: bytes that a write has acknowledged are in the ranges of their file until a persist
// step that began later has ended; one step of a file runs at a time. Threads: the executor's.
// Lifetimes: the links outlive it; its tasks may be destroyed at any suspension.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "base/executor.h"
#include "fs/internal/data_links.h"
#include "fs/internal/dirty_ranges.h"
#include "fs/posix_error.h"
#include "fs/types.h"

namespace pmstore::fs::internal {

class UnsyncedFiles {
 public:
  UnsyncedFiles(base::Executor& executor, DataLinks& links) : executor_(executor), links_(links) {}

  // The pieces were written in these sessions, and are visible. True: the file has as much as it
  // may have, and persist() is due.
  bool add(Ino ino, const DataSessions& sessions, const std::vector<MapExtent>& written);
  // Durable on return: all that was added before the call, but for losses. EIO: a data server is
  // away; what it has stays unsynced.
  base::Task<PosixStatus> persist(Ino ino);
  // Those of which something may not be durable.
  std::set<Ino> files() const;
  bool any() const;
  // How many times something was lost, by a number that only grows.
  uint64_t losses(Ino ino) const;
  // There is one more.
  std::function<void(Ino)> on_loss;

 private:
  struct OfFile {
    explicit OfFile(base::Executor& executor) : ended(executor) {}
    DirtyRanges ranges;
    bool persisting = false;
    uint64_t losses = 0;
    base::WaitList ended;
    bool is_unsynced() const { return persisting || !ranges.empty(); }
  };
  class Step;

  base::Executor& executor_;
  DataLinks& links_;
  std::map<Ino, std::shared_ptr<OfFile>> files_;
};

}  // namespace pmstore::fs::internal
