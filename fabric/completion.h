// Completion: the outcome of one posted batch; CompletionAwaiter: how a coroutine waits for it;
// CompletionPool: the memory of completions that outlive the coroutines which wait for them.
//
// A provider keeps the address of a Completion from post() until finish(), or until the connection
// is destroyed. A Completion in a coroutine's frame is therefore wrong: the frame may go first. It
// lives either in something that outlives the request (a registered buffer), or it is leased from
// the connection's CompletionPool: a PendingCompletion that is destroyed too early leaves the slot
// to the provider, and finish() gives it back to the pool.
//
// Invariants: a slot is in the pool's free list, leased, or abandoned, never two of these; an
// abandoned slot is pending. Threads: those of the connection.
#pragma once

#include <coroutine>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "base/check.h"

namespace pmstore::fabric {

class CompletionPool;

// Pinned: must live, unmoved, until done() or the connection is destroyed.
class Completion {
 public:
  Completion() = default;
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;

  bool done() const { return state_ != State::kPending && state_ != State::kIdle; }
  bool idle() const { return state_ == State::kIdle; }
  bool ok() const { return state_ == State::kOk; }

  // For providers.
  void arm() {
    PMSTORE_CHECK(state_ != State::kPending, "a completion belongs to one request at a time");
    state_ = State::kPending;
  }
  // Marks it done. Resumes the coroutine that waits, if there is one, before it returns: the
  // Completion may be destroyed then.
  inline void finish(bool ok);
  // For awaiters.
  void set_waiter(std::coroutine_handle<> waiter) { waiter_ = waiter; }

 private:
  friend class CompletionPool;
  enum class State : uint8_t { kIdle, kPending, kOk, kFailed };
  State state_ = State::kIdle;
  std::coroutine_handle<> waiter_;
  CompletionPool* abandoned_to_ = nullptr;
};

// The completions that coroutines lease from one connection. The pool grows to the largest number
// of leases at the same time. The connection and each lease hold a reference; the last one deletes
// the pool.
class CompletionPool {
 public:
  CompletionPool() = default;
  CompletionPool(const CompletionPool&) = delete;
  CompletionPool& operator=(const CompletionPool&) = delete;

  // Leases an idle completion.
  Completion& take() {
    ++references_;
    if (free_.empty()) return slots_.emplace_back();
    Completion& slot = *free_.back();
    free_.pop_back();
    return slot;
  }
  // Ends the lease of `slot`, whose request may still be under way.
  void end_lease(Completion& slot) {
    PMSTORE_CHECK(slot.abandoned_to_ == nullptr, "a lease ends once");
    slot.waiter_ = {};
    const bool under_way = slot.state_ == Completion::State::kPending;
    if (under_way && !closed_) {
      slot.abandoned_to_ = this;
    } else {
      put(slot);
    }
    release();
  }
  // The connection is destroyed: pending completions are never finished.
  void close() {
    closed_ = true;
    release();
  }
  size_t leased_or_abandoned() const { return slots_.size() - free_.size(); }

 private:
  friend class Completion;
  ~CompletionPool() = default;
  void put(Completion& slot) {
    slot.state_ = Completion::State::kIdle;
    slot.abandoned_to_ = nullptr;
    free_.push_back(&slot);
    PMSTORE_CHECK(free_.size() <= slots_.size(), "a completion is given back once");
  }
  void release() {
    if (--references_ == 0) delete this;
  }

  std::deque<Completion> slots_;
  std::vector<Completion*> free_;
  uint32_t references_ = 1;  // the connection's
  bool closed_ = false;
};

void Completion::finish(bool ok) {
  state_ = ok ? State::kOk : State::kFailed;
  if (waiter_) {
    std::exchange(waiter_, {}).resume();
  } else if (abandoned_to_ != nullptr) [[unlikely]] {
    abandoned_to_->put(*this);
  }
}

// A completion for one batch, leased from a connection. It may be destroyed at any moment, even
// after the connection.
class PendingCompletion {
 public:
  explicit PendingCompletion(CompletionPool& pool) : pool_(pool), completion_(pool.take()) {}
  ~PendingCompletion() { pool_.end_lease(completion_); }
  PendingCompletion(const PendingCompletion&) = delete;
  PendingCompletion& operator=(const PendingCompletion&) = delete;
  Completion& operator*() const { return completion_; }
  Completion* operator->() const { return &completion_; }

 private:
  CompletionPool& pool_;
  Completion& completion_;
};

// Waits for `completion`; gives whether the request succeeded. The waiting coroutine may be
// destroyed; `completion` outlives the coroutine or belongs to a PendingCompletion.
class CompletionAwaiter {
 public:
  explicit CompletionAwaiter(Completion& completion) : completion_(completion) {}
  CompletionAwaiter(const CompletionAwaiter&) = delete;
  CompletionAwaiter& operator=(const CompletionAwaiter&) = delete;
  ~CompletionAwaiter() {
    if (suspended_) completion_.set_waiter({});
  }
  bool await_ready() const { return completion_.done(); }
  void await_suspend(std::coroutine_handle<> waiter) {
    suspended_ = true;
    completion_.set_waiter(waiter);
  }
  bool await_resume() {
    suspended_ = false;
    return completion_.ok();
  }

 private:
  Completion& completion_;
  bool suspended_ = false;
};

}  // namespace pmstore::fabric
