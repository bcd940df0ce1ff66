// Invalidator: makes the kernel forget what it has of a file, on a thread of its own.
//
// The kernel answers only when no page of the file is locked, that is when the reads and writes
// under way are over. The executor's thread answers those, so it must not wait for that.
// Threads: the executor's, and one that it starts. Lifetimes: the executor outlives it. The thread
// may outlive the Invalidator when the kernel does not answer: it has what it uses for itself.
#pragma once

#include <cstdint>
#include <memory>
#include <thread>

#include "base/executor.h"
#include "base/result.h"
#include "base/task.h"

namespace pmstore::tools {

class Invalidator {
 public:
  // `device`: the descriptor of /dev/fuse. Io: no descriptor, or no thread, is left.
  static Result<std::unique_ptr<Invalidator>> start(base::Executor& executor, int device);
  ~Invalidator();
  Invalidator(const Invalidator&) = delete;
  Invalidator& operator=(const Invalidator&) = delete;

  // When it ends, the kernel has no page and no attributes of the file that it had when this was
  // called. What it had to write from its pages it has written. Or this has ended meanwhile.
  base::Task<void> invalidate(uint64_t node);

 private:
  struct Shared;
  explicit Invalidator(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
  static void work(const std::shared_ptr<Shared>& shared);

  const std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace pmstore::tools
