// Channel: what the two ends of a local connection share, and the only memory that both threads
// touch.
//
// Invariants:
// * An end works on the other's memory or device only while its own in_flight is set and after it
// has
//   seen the other's state be kOpen (Dekker: both are sequentially consistent). An end that closes
//   stores kClosed, then waits until the other's in_flight is clear: from then on it cannot be
//   reached.
// * inbox: written by the peer (tail), read by the owner (head); 0 <= tail - head <= kInboxSlots.
// * scheduled is set exactly while the endpoint is in its device's queue or being taken out of it.
// * same_thread is set while both ends are on one executor. Then nothing here is ever concurrent,
// and the
//   sequentially consistent stores and exchanges are left out: each costs as much as a small READ.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/executor.h"

namespace pmstore::fabric {

class LateFlight;
class LocalConnection;
class LocalDevice;

enum class EndpointState : uint8_t {
  kUnborn,  // the handshake has not been accepted yet
  kOpen,
  kClosed,  // broken or destroyed
};

struct alignas(64) Endpoint {
  static constexpr uint32_t kInboxSlots = 1024;

  // Written by the owner of this end.
  std::atomic<bool> in_flight{false};
  std::atomic<EndpointState> state{EndpointState::kUnborn};
  // Being destroyed: late effects of the other end are over. Stored before a look at its state.
  std::atomic<bool> gone{false};
  // Why it closed, for the other's error message; stored before kClosed.
  std::atomic<uint8_t> access_fault{0};
  LocalDevice* device = nullptr;             // set before kOpen
  const base::Executor* executor = nullptr;  // the same
  LocalConnection* connection = nullptr;     // used on the owner's thread only
  bool same_thread = false;                  // the same
  // What this end has posted, when its device has late effects; set before kOpen.
  std::shared_ptr<LateFlight> late;

  // Written by whoever has something for the owner to look at.
  alignas(64) std::atomic<bool> scheduled{false};
  Endpoint* next_scheduled = nullptr;

  alignas(64) std::atomic<uint32_t> tail{0};
  alignas(64) std::atomic<uint32_t> head{0};
  uint32_t inbox[kInboxSlots];

  // Producer.
  uint32_t room() const {
    return kInboxSlots -
           (tail.load(std::memory_order_relaxed) - head.load(std::memory_order_acquire));
  }
  void push(uint32_t immediate) {
    const uint32_t at = tail.load(std::memory_order_relaxed);
    inbox[at % kInboxSlots] = immediate;
    tail.store(at + 1, std::memory_order_release);
  }
  // Consumer.
  bool empty() const {
    return tail.load(std::memory_order_acquire) == head.load(std::memory_order_relaxed);
  }
  uint32_t pop() {
    const uint32_t at = head.load(std::memory_order_relaxed);
    const uint32_t immediate = inbox[at % kInboxSlots];
    head.store(at + 1, std::memory_order_release);
    return immediate;
  }
};

struct Channel {
  Endpoint connector;
  Endpoint listener;
};

}  // namespace pmstore::fabric
