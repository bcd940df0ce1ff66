// Core: one CPU core of a modelled host: when it is free, and what waits for it.
//
// The code under test runs in zero time of the executor. What it does is charged here: after a call
// into it, the core is busy until free_ps(), and what comes in meanwhile (completions, immediates)
// waits in order. What the code posts leaves at free_ps(), not at the executor's time. Code that a
// timer of the executor wakes is not held back, only charged. Threads: one.
#pragma once

#include <algorithm>
#include <cstdint>

#include "model/event_queue.h"
#include "model/ring_queue.h"

namespace pmstore::fabric {
class Completion;
}

namespace pmstore::model {

class Cluster;
struct QueuePair;

// Something for the code under test.
struct Delivery {
  enum class Kind : uint8_t { kCompleted, kFailed, kImmediate, kDisconnect };
  Kind kind;
  uint32_t immediate;
  QueuePair* to;  // of the connection that is told
  fabric::Completion* completion;
  // Of an immediate: what was written with it.
  const void* written = nullptr;
  uint32_t bytes = 0;
};

class Core {
 public:
  Core(Cluster& cluster, uint32_t number);
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  uint32_t number() const { return number_; }  // in its host
  // When it will have done what it was charged with so far; not before now.
  uint64_t free_ps() const { return std::max(free_ps_, events_.now_ps()); }
  void charge(uint64_t duration_ps) { set_free(free_ps() + duration_ps); }
  // The core is busy until then.
  void set_free(uint64_t time_ps) {
    const uint64_t from_ps = free_ps();
    if (time_ps <= from_ps) return;
    busy_ps_ += time_ps - from_ps;
    free_ps_ = time_ps;
  }
  uint64_t busy_ps() const { return busy_ps_; }  // in all

  // Hands `delivery` to its connection as soon as the core is free and what came before is done.
  void deliver(const Delivery& delivery);

 private:
  void wake();
  void run(uint32_t);
  void listen_again(uint32_t);

  Cluster& cluster_;
  EventQueue& events_;
  const uint32_t number_;
  uint64_t free_ps_ = 0;
  uint64_t busy_ps_ = 0;
  RingQueue<Delivery> waiting_;
  RingQueue<Delivery> unheard_;  // immediates and news for connections without a receiver yet
  bool awake_ = false;           // an event is set that runs the first of waiting_
};

}  // namespace pmstore::model
