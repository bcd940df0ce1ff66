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

namespace pmstore::fabric {

// The fate of one posted batch. Pinned: must live, unmoved, until done() or the connection is
// destroyed.
class Completion {
 public:
  Completion() = default;
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;

  bool done() const { return state_ != State::kPending && state_ != State::kIdle; }
  bool idle() const { return state_ == State::kIdle; }
  bool ok() const { return state_ == State::kOk; }

  // For providers.
  void arm() { state_ = State::kPending; }
  // Marks it done and, if a coroutine waits, resumes it before returning. The Completion may be
  // gone then.
  void finish(bool ok) {
    state_ = ok ? State::kOk : State::kFailed;
    if (waiter_) std::exchange(waiter_, {}).resume();
  }
  // For awaiters.
  void set_waiter(std::coroutine_handle<> waiter) { waiter_ = waiter; }

 private:
  enum class State : uint8_t { kIdle, kPending, kOk, kFailed };
  State state_ = State::kIdle;
  std::coroutine_handle<> waiter_;
};

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
  virtual ~Connection() = default;

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
  // The list and the completions must be named objects that outlive the wait.
  base::Task<Status> wait(std::span<Completion* const> completions);

  struct ExecuteAwaiter {
    Connection& connection;
    Completion completion;
    Status posted;
    ExecuteAwaiter(Connection& c, const Batch& batch)
        : connection(c), posted(c.post(batch, &completion)) {}
    bool await_ready() { return !posted || completion.done(); }
    void await_suspend(std::coroutine_handle<> waiter) { completion.set_waiter(waiter); }
    Status await_resume() {
      if (!posted) return std::move(posted);
      ++connection.counters_.round_trips;
      if (!completion.ok()) return connection.why_broken();
      return {};
    }
  };
  // post() and wait for it: one doorbell, one round trip, one completion.
  // `batch` must be a named object that outlives the wait.
  ExecuteAwaiter execute(const Batch& batch) { return ExecuteAwaiter(*this, batch); }

 protected:
  Capabilities capabilities_;
  Counters counters_;
  std::vector<std::byte> peer_hello_;
  Receiver* receiver_ = nullptr;
  bool broken_ = false;
  Error why_broken_{ErrorCode::kDisconnected, {}};
};

}  // namespace pmstore::fabric
