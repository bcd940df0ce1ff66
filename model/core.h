// Core: one CPU core of a modelled host: the time at which it is free, and the deliveries that wait
// for it.
//
// The code under test runs in zero time of the executor. Its work is charged here: after a call
// into the code, the core is busy until free_ps(), and completions and immediates that arrive
// meanwhile wait in order. The code's posts leave at free_ps(), not at the executor's time. Code
// that a timer of the executor wakes is not delayed, only charged. Threads: one.
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

// A completion, an immediate or a disconnect for the code under test.
struct Delivery {
  enum class Kind : uint8_t { kCompleted, kFailed, kImmediate, kDisconnect };
  Kind kind;
  uint32_t immediate;
  QueuePair* to;  // of the connection that is told
  fabric::Completion* completion;
  // Of an immediate: the bytes that were written with it.
  const void* written = nullptr;
  uint32_t bytes = 0;
};

class Core {
 public:
  Core(Cluster& cluster, uint32_t number);
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  uint32_t number() const { return number_; }  // in its host
  // The time at which the work charged so far is done; not before now.
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
  void redeliver(uint32_t);

  Cluster& cluster_;
  EventQueue& events_;
  const uint32_t number_;
  uint64_t free_ps_ = 0;
  uint64_t busy_ps_ = 0;
  RingQueue<Delivery> waiting_;
  RingQueue<Delivery> undelivered_;  // immediates and disconnects of connections without a receiver
  bool awake_ = false;               // an event is set that runs the first of waiting_
};

}  // namespace pmstore::model
