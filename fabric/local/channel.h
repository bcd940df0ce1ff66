// Channel: the memory that the two ends of a local connection share; no other memory is used by
// both threads.
//
// Invariants:
//   an end uses the other's memory or device only while its own in_flight is set, and only if it
//   has then seen the other's state be kOpen (Dekker: both are sequentially consistent). An end
//   that closes stores kClosed, then waits until the other's in_flight is clear: from then on it
//   cannot be reached. inbox: the peer writes it (tail), the owner reads it (head); 0 <= tail -
//   head <= kInboxSlots scheduled is set exactly while the endpoint is in its device's queue or is
//   being taken out of it same_thread is set while both ends are on one executor. Then nothing here
//   is concurrent, and the sequentially consistent stores and exchanges are left out: each costs as
//   much as a small READ.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/check.h"
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
  // This end is being destroyed: late effects of the other end are over. Stored before the other's
  // state is read.
  std::atomic<bool> gone{false};
  // The reason for closing, for the other's error message; stored before kClosed.
  std::atomic<uint8_t> access_fault{0};
  LocalDevice* device = nullptr;             // set before kOpen
  const base::Executor* executor = nullptr;  // the same
  LocalConnection* connection = nullptr;     // used on the owner's thread only
  bool same_thread = false;                  // the same
  // What this end has posted, when its device has late effects; set before kOpen.
  std::shared_ptr<LateFlight> late;

  // Set by the thread that has work for the owner's next poll.
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
    PMSTORE_CHECK(at - head.load(std::memory_order_relaxed) < kInboxSlots,
                  "the producer has checked that there is room");
    inbox[at % kInboxSlots] = immediate;
    tail.store(at + 1, std::memory_order_release);
  }
  // Consumer.
  bool empty() const {
    return tail.load(std::memory_order_acquire) == head.load(std::memory_order_relaxed);
  }
  uint32_t size() const {
    return tail.load(std::memory_order_acquire) - head.load(std::memory_order_relaxed);
  }
  // The i-th that pop() will give; i < size().
  uint32_t peek(uint32_t i) const {
    return inbox[(head.load(std::memory_order_relaxed) + i) % kInboxSlots];
  }
  uint32_t pop() {
    const uint32_t at = head.load(std::memory_order_relaxed);
    PMSTORE_CHECK(at != tail.load(std::memory_order_relaxed), "an empty inbox has no immediate");
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
