// EventQueue: the discrete-event core of the modelled machine. Events are called in order of time,
// equal times in the order in which they were set.
//
// Times are picoseconds since the start of the simulation; the executor's virtual clock shows the
// same time rounded down to ns. It is a Poller: the executor jumps from event to event, and between
// two events that wake no coroutine the queue moves the clock itself, which saves a round of the
// executor. An event is a pointer, a member function and one word: setting it allocates nothing
// once the heap has grown. An event cannot be taken back; its object must outlive it.
// Threads: the executor's. The executor's clock must be virtual (CHECK).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "base/executor.h"
#include "model/queue.h"

namespace pmstore::model {

inline constexpr uint64_t kPsPerNs = 1000;

class EventQueue final : public base::Poller {
 public:
  explicit EventQueue(base::Executor& executor);
  ~EventQueue() override;
  EventQueue(const EventQueue&) = delete;
  EventQueue& operator=(const EventQueue&) = delete;

  // During an event its time; else the clock's, or that of the last event if that is later within
  // the same ns.
  uint64_t now_ps() const {
    const uint64_t clock_ps = executor_.now_ns() * kPsPerNs;
    return std::max(clock_ps, last_.ps());
  }

  // The time of the last event, for servers that are asked for later times (model/queue.h).
  const Now& last() const { return last_; }

  // Calls object->Method(argument) at `time_ps`, or now if that has passed.
  template <auto Method, typename T, typename A>
  void at(uint64_t time_ps, T* object, A argument) {
    static_assert(std::is_trivially_copyable_v<A> && sizeof(A) <= sizeof(uint64_t));
    uint64_t word = 0;
    std::memcpy(&word, &argument, sizeof(A));
    push(Event{time_ps, order_++, &call<Method, T, A>, object, word});
  }

  // Code outside the model was called, or something happened that other pollers have to see: the
  // clock stands still until the executor has made a full round.
  void interrupt() { interrupted_ = true; }

  size_t poll() override;
  uint64_t next_event_ns() const override {
    return heap_.empty() ? kNoEvent : heap_.front().time_ps / kPsPerNs;
  }

  // Its events have times, and it is used in virtual time.
  bool arm() override { return true; }

  uint64_t events() const { return events_; }  // called so far
  size_t pending() const { return heap_.size(); }

 private:
  struct Event {
    uint64_t time_ps;
    uint64_t order;
    void (*call)(void* object, uint64_t argument);
    void* object;
    uint64_t argument;
    bool before(const Event& other) const {
      return time_ps != other.time_ps ? time_ps < other.time_ps : order < other.order;
    }
  };
  template <auto Method, typename T, typename A>
  static void call(void* object, uint64_t word) {
    A argument;
    std::memcpy(&argument, &word, sizeof(A));
    (static_cast<T*>(object)->*Method)(argument);
  }
  void push(const Event& event);
  Event pop();

  base::Executor& executor_;
  std::vector<Event> heap_;  // four children each: half the levels of a binary one
  uint64_t order_ = 0;
  Now last_;
  uint64_t events_ = 0;
  bool interrupted_ = false;
};

}  // namespace pmstore::model
