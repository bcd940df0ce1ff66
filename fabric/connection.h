// Connection: one reliable connection (an RC queue pair, a socket, an in-process channel).
//
// Threads: belongs to its device's executor. Completions and receptions are delivered from that
// executor's polling, never from inside post(). Bounded: every posted batch completes within the
// connection's operation timeout, with success or with an error; after the first error the
// connection is broken, everything outstanding completes with that error, and nothing more can be
// posted.
//
// Fencing: when the destructor of either end has returned, nothing that the other end has posted
// can still reach this end's memory.
#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "base/result.h"
#include "fabric/batch.h"
#include "fabric/capabilities.h"
#include "fabric/completion.h"

namespace pmstore::fabric {

// What arrives without being asked for. Calls come from polling; the receiver may destroy the
// connection from inside on_disconnect(), and from inside on_immediate().
class Receiver {
 public:
  virtual ~Receiver() = default;
  // A WRITE-with-immediate has landed.
  virtual void on_immediate(uint32_t immediate) = 0;
  // The connection is broken; called once, after all outstanding completions have been delivered.
  virtual void on_disconnect(const Error& why) = 0;
};

class Connection {
 public:
  Connection() : completions_(*new CompletionPool) {}
  virtual ~Connection() { completions_.close(); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Posts `batch` with one doorbell. With a `completion`, it is armed here and finished later;
  // without, the batch is unsignaled (the provider still reclaims its queue entries by itself).
  // Disconnected when broken; BackPressure when the send queue has no room (nothing was posted
  // then).
  virtual Status post(const Batch& batch, Completion* completion) = 0;

  const Capabilities& capabilities() const { return capabilities_; }
  const Counters& counters() const { return counters_; }
  Counters& mutable_counters() { return counters_; }

  // The blob that the other side gave in the handshake.
  std::span<const std::byte> peer_hello() const { return peer_hello_; }

  // Replaces who is told; nullptr for nobody. Immediates that arrived before are delivered to the
  // first.
  void set_receiver(Receiver* receiver) { receiver_ = receiver; }

  bool broken() const { return broken_; }
  // Why it is broken; meaningful only then.
  const Error& why_broken() const { return why_broken_; }

  // Waiting for completions; counts one round trip, however many completions are waited for.
  // Gives the error of the connection if one of them failed.
  // The list must be a named object that outlives the wait, the completions outlive the requests.
  base::Task<Status> wait(std::span<Completion* const> completions);

  // Posts a batch and waits for it: one doorbell, one round trip, one completion. The coroutine
  // that waits may be destroyed meanwhile.
  class ExecuteAwaiter {
   public:
    // `completion` outlives the request.
    ExecuteAwaiter(Connection& connection, const Batch& batch, Completion& completion)
        : connection_(connection),
          posted_(connection.post(batch, &completion)),
          completed_(completion) {}
    ExecuteAwaiter(const ExecuteAwaiter&) = delete;
    ExecuteAwaiter& operator=(const ExecuteAwaiter&) = delete;
    bool await_ready() const { return !posted_ || completed_.await_ready(); }
    void await_suspend(std::coroutine_handle<> waiter) { completed_.await_suspend(waiter); }
    Status await_resume() {
      if (!posted_) return std::move(posted_);
      ++connection_.counters_.round_trips;
      if (!completed_.await_resume()) return connection_.why_broken();
      return {};
    }
    bool posted() const { return posted_.has_value(); }

   private:
    Connection& connection_;
    Status posted_;
    CompletionAwaiter completed_;
  };
  // The same with a completion of its own.
  class LeasedExecuteAwaiter : PendingCompletion, public ExecuteAwaiter {
   public:
    LeasedExecuteAwaiter(Connection& connection, const Batch& batch)
        : PendingCompletion(connection.completions()),
          ExecuteAwaiter(connection, batch, PendingCompletion::operator*()) {}
  };
  // `batch` must be a named object that outlives the wait, and its buffers the request.
  LeasedExecuteAwaiter execute(const Batch& batch) { return LeasedExecuteAwaiter(*this, batch); }

  // Where PendingCompletions of this connection come from.
  CompletionPool& completions() { return completions_; }

 protected:
  Capabilities capabilities_;
  Counters counters_;
  std::vector<std::byte> peer_hello_;
  Receiver* receiver_ = nullptr;
  bool broken_ = false;
  Error why_broken_{ErrorCode::kDisconnected, {}};

 private:
  CompletionPool& completions_;
};

}  // namespace pmstore::fabric
