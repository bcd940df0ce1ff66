// Reconnector: makes a client's connection again when it is lost, for all operations that ask.
//
// One attempt serves everybody who asks while it runs. It tries again for as long as the client has
// patience: with a server that is away, and with one that is busy with what the old session left
// behind. Pauses double from 1 ms to 200 ms. Invariants: at most one attempt runs at a time; its
// result is that of all operations that waited for it; none begins after close(). Threads: the
// executor's. Lifetimes: the target outlives it; it outlives its tasks, which may be destroyed at
// any moment: those who waited for a destroyed attempt try themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/executor.h"
#include "base/result.h"
#include "base/task.h"

namespace pmstore::service {

struct Patience {
  uint64_t away_ns = 0;  // with a server that does not answer; 0: one try
  uint64_t busy_ns = 0;  // with one that says BackPressure
};

class Reconnector {
 public:
  // What is connected.
  class Target {
   public:
    virtual ~Target() = default;

   protected:
    friend class Reconnector;
    virtual bool usable() const = 0;
    // Waits, within a bound, for what the end of the old connection would leave in doubt.
    virtual base::Task<void> let_go() = 0;
    // One try. After a success it is usable().
    virtual base::Task<Status> connect_once() = 0;
  };

  Reconnector(base::Executor& executor, Target& target, Patience patience)
      : executor_(executor), target_(target), patience_(patience), done_(executor) {}
  Reconnector(const Reconnector&) = delete;
  Reconnector& operator=(const Reconnector&) = delete;

  // Usable on success. Disconnected: closed, or the server is away; other errors of connect_once().
  base::Task<Status> connected();
  // Waits for the attempt that runs. From then on connected() is Disconnected.
  base::Task<void> close();
  bool closed() const { return closed_; }
  bool connecting() const { return connecting_; }
  // Operations that wait for the attempt that runs.
  size_t waiting() const { return done_.waiting(); }

 private:
  class Attempt;
  uint64_t retry_until(ErrorCode code, uint64_t began_ns) const;

  base::Executor& executor_;
  Target& target_;
  const Patience patience_;
  base::WaitList done_;
  bool connecting_ = false;
  bool closed_ = false;
  std::optional<Error> failure_;  // of the last attempt; empty after a success
};

}  // namespace pmstore::service
