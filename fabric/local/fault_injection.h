// Faults of the local provider, for the tests of every layer above it.
//
// One injector at a time is installed for the whole process and is asked about every work request
// before it takes effect, in posting order, on the poster's thread. Requests are thereby numbered
// fault points: a test that walks FailNthRequest from 1 until fired() stays false has lost the
// connection at each point of the protocol. Without an injector the data path pays for one load.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/executor.h"
#include "fabric/batch.h"

namespace pmstore::fabric {

struct FaultPoint {
  const base::Executor* executor;  // of the poster
  bool connector;  // posted by the end that called connect() (or loopback()), not by the listener's
  const WorkRequest& request;
};

enum class Fault : uint8_t {
  kNone,
  // The connection breaks, at both ends, before the request has taken effect.
  kBreakBefore,
  // The request takes effect, and an immediate is still delivered; then the connection breaks. The
  // poster sees a failed completion, so it does not know the outcome.
  kBreakAfter,
  // The request and the later ones on this connection take effect inline, but no completion is
  // delivered for `delay_ns` (the executor's clock), or until the operation timeout breaks the
  // connection.
  kDelay,
};

struct FaultDecision {
  Fault fault = Fault::kNone;
  uint64_t delay_ns = 0;
};

class FaultInjector {
 public:
  virtual ~FaultInjector() = default;
  // Called by any thread that posts. Must not post, wait or destroy connections.
  virtual FaultDecision on_request(const FaultPoint& point) = 0;
  // Asked by every Device::loopback(); true: it fails with Disconnected.
  virtual bool refuses_loopback() { return false; }
  // Asked by every Device::register_memory(); true: it fails with Io.
  virtual bool refuses_memory(uint64_t /*bytes*/) { return false; }
};

// Installs `injector` for the life of this object. When the destructor has returned, no thread uses
// the injector any more.
class ScopedFaultInjector {
 public:
  explicit ScopedFaultInjector(FaultInjector& injector);
  ~ScopedFaultInjector();
  ScopedFaultInjector(const ScopedFaultInjector&) = delete;
  ScopedFaultInjector& operator=(const ScopedFaultInjector&) = delete;
};

// The ends whose requests are counted.
enum class FaultSide : uint8_t { kConnector, kListener, kBoth };

// Does `fault` to the n-th request (from 1) of the chosen side, and nothing else.
class FailNthRequest final : public FaultInjector {
 public:
  FailNthRequest(uint64_t n, FaultSide side, FaultDecision fault)
      : n_(n), side_(side), fault_(fault) {}
  FaultDecision on_request(const FaultPoint& point) override;
  // Requests seen so far.
  uint64_t seen() const { return seen_.load(std::memory_order_acquire); }
  bool fired() const { return seen() >= n_; }

 private:
  const uint64_t n_;
  const FaultSide side_;
  const FaultDecision fault_;
  std::atomic<uint64_t> seen_{0};
};

namespace internal {

extern std::atomic<FaultInjector*> installed_injector;
FaultDecision ask_injector(const FaultPoint& point);
bool loopback_is_refused();
bool memory_is_refused(uint64_t bytes);

// What happens to this request; the usual answer costs one load.
inline FaultDecision fault_of(const FaultPoint& point) {
  if (installed_injector.load(std::memory_order_relaxed) == nullptr) [[likely]]
    return {};
  return ask_injector(point);
}

}  // namespace internal

}  // namespace pmstore::fabric
