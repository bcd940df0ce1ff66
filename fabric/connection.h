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
#include "base/task.h"
#include "fabric/batch.h"
#include "fabric/capabilities.h"
#include "fabric/completion.h"
#include "fabric/destruction_watch.h"

namespace pmstore::fabric {

// Takes the immediates that the peer sends, and the news that the connection is broken. Polling
// calls these functions; each of them may destroy the connection.
class Receiver {
 public:
  virtual ~Receiver() = default;
  // A WRITE-with-immediate has taken effect: its data is in memory.
  virtual void on_immediate(uint32_t immediate) = 0;
  // A hint: several immediates have arrived, and on_immediate() comes for this one soon. So memory
  // that it will need can be asked for before any of it is waited for. `data` is what its WRITE
  // brings, which the peer may still change; empty: it is in memory. Some immediates come without
  // a hint, and some hints without their immediate. Destroys nothing, and posts nothing.
  virtual void on_waiting(uint32_t /*immediate*/, std::span<const std::byte> /*data*/) {}
  // The connection is broken; called once, after all outstanding completions have been delivered.
  virtual void on_disconnect(const Error& why) = 0;
  // Nothing has moved for a while after much had moved: a good moment to give memory back. Nothing
  // that the peer has posted is half in memory. Of tcp and shm only: elsewhere the owner may ask
  // for Connection::arrivals(). Destroys nothing.
  virtual void on_idle() {}
};

// What a connection knows of requests that its peer has posted and this end has not looked at.
enum class Arrivals : uint8_t {
  kUnknown,  // there may be some, or some of the data of one
  kSome,
  kNone,  // and none begins before this thread's next poll
};

// Providers tell of so many immediates at a time (Receiver::on_waiting()): a processor waits for
// about as many lines of memory at the same time.
inline constexpr size_t kToldTogether = 16;

class Connection {
 public:
  explicit Connection(base::Executor& executor)
      : completions_(*new CompletionPool), executor_(executor) {}
  virtual ~Connection() { completions_.close(); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Posts `batch` with one doorbell. `completion` is armed here and finished later; nullptr: the
  // batch is unsignaled, and the provider reclaims its queue entries by itself.
  // Disconnected when the connection is broken; BackPressure when the send queue has no room. With
  // an error nothing was posted.
  virtual Status post(const Batch& batch, Completion* completion) = 0;

  // Calls `try_post`, which posts something on this connection and gives the result, until that
  // result is not BackPressure. The first call is made before the wait begins: with room in the
  // send queue nothing is suspended or allocated. Later calls follow every kRoomPollNs.
  // Gives the last result of `try_post`; Timeout when the queue stays full for `timeout_ns`;
  // Disconnected when the connection is destroyed meanwhile, and `try_post` is not called then.
  // With an error nothing was posted. The coroutine that waits may be destroyed at any time: then
  // `try_post` is not called again.
  template <typename TryPost>
  class RoomAwaiter {
   public:
    RoomAwaiter(Connection& connection, uint64_t timeout_ns, TryPost try_post)
        : connection_(connection),
          timeout_ns_(timeout_ns),
          try_post_(std::move(try_post)),
          posted_(try_post_()) {}
    RoomAwaiter(const RoomAwaiter&) = delete;
    RoomAwaiter& operator=(const RoomAwaiter&) = delete;
    bool await_ready() const { return !is_full(posted_); }
    bool await_suspend(std::coroutine_handle<> waiter) {
      const auto call = [](void* self) { return static_cast<RoomAwaiter*>(self)->try_post_(); };
      retries_ = retry_while_full(connection_, timeout_ns_, call, this);
      return std::move(retries_).operator co_await().await_suspend(waiter);
    }
    Status await_resume() { return is_full(posted_) ? retries_.take() : std::move(posted_); }

   private:
    Connection& connection_;
    uint64_t timeout_ns_;
    TryPost try_post_;
    Status posted_;               // what the first call gave
    base::Task<Status> retries_;  // exists if posted_ is BackPressure
  };
  template <typename TryPost>
  RoomAwaiter<TryPost> post_when_room(uint64_t timeout_ns, TryPost try_post) {
    return RoomAwaiter<TryPost>(*this, timeout_ns, std::move(try_post));
  }
  // The same with post(batch, completion). `batch` must be a named object that outlives the wait.
  auto post_when_room(const Batch& batch, Completion* completion, uint64_t timeout_ns) {
    return post_when_room(timeout_ns,
                          [this, &batch, completion] { return post(batch, completion); });
  }
  static constexpr uint64_t kRoomPollNs = 1000;

  const Capabilities& capabilities() const { return capabilities_; }
  const Counters& counters() const { return counters_; }
  Counters& mutable_counters() { return counters_; }

  virtual Arrivals arrivals() const { return Arrivals::kUnknown; }

  // The hello that the peer sent in the handshake.
  std::span<const std::byte> peer_hello() const { return peer_hello_; }

  // Replaces the receiver; nullptr: there is none. Immediates that arrive before the first receiver
  // is set are kept, and delivered to it.
  void set_receiver(Receiver* receiver) { receiver_ = receiver; }

  bool broken() const { return broken_; }
  // The error that broke the connection; meaningful only if broken().
  const Error& why_broken() const { return why_broken_; }

  // Waits for all of `completions`; counts one round trip. Gives the error of the connection if one
  // of them failed. `completions` is a named object that outlives the wait; each completion
  // outlives its request.
  base::Task<Status> wait(std::span<Completion* const> completions);

  // Posts a batch and waits until it is complete: one doorbell, one round trip, one completion.
  // Errors as post(), and the error of the connection. The waiting coroutine may be destroyed.
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
  // An ExecuteAwaiter that leases its completion from the connection.
  class LeasedExecuteAwaiter : PendingCompletion, public ExecuteAwaiter {
   public:
    LeasedExecuteAwaiter(Connection& connection, const Batch& batch)
        : PendingCompletion(connection.completions()),
          ExecuteAwaiter(connection, batch, PendingCompletion::operator*()) {}
  };
  // `batch` is a named object that outlives the wait; its buffers outlive the request.
  LeasedExecuteAwaiter execute(const Batch& batch) { return LeasedExecuteAwaiter(*this, batch); }

  // The pool from which PendingCompletions of this connection are leased.
  CompletionPool& completions() { return completions_; }

 protected:
  Capabilities capabilities_;
  Counters counters_;
  std::vector<std::byte> peer_hello_;
  Receiver* receiver_ = nullptr;
  bool broken_ = false;
  Error why_broken_{ErrorCode::kDisconnected, {}};
  internal::Lifetime lifetime_;

 private:
  static bool is_full(const Status& posted) {
    return !posted && posted.code() == ErrorCode::kBackPressure;
  }
  // Of RoomAwaiter, after its first try. `context` outlives the task, `connection` need not.
  static base::Task<Status> retry_while_full(Connection& connection, uint64_t timeout_ns,
                                             Status (*try_post)(void* context), void* context);

  CompletionPool& completions_;
  base::Executor& executor_;
};

}  // namespace pmstore::fabric
