#include "fabric/local/fault_injection.h"

#include <sched.h>

#include "base/check.h"

namespace pmstore::fabric {

namespace internal {

std::atomic<FaultInjector*> installed_injector{nullptr};

namespace {
std::atomic<uint32_t> asking{0};
}

FaultDecision ask_injector(const FaultPoint& point) {
  asking.fetch_add(1, std::memory_order_seq_cst);
  FaultInjector* injector = installed_injector.load(std::memory_order_seq_cst);
  const FaultDecision decision =
      injector == nullptr ? FaultDecision{} : injector->on_request(point);
  asking.fetch_sub(1, std::memory_order_release);
  return decision;
}

bool loopback_is_refused() {
  asking.fetch_add(1, std::memory_order_seq_cst);
  FaultInjector* injector = installed_injector.load(std::memory_order_seq_cst);
  const bool refused = injector != nullptr && injector->refuses_loopback();
  asking.fetch_sub(1, std::memory_order_release);
  return refused;
}

bool memory_is_refused(uint64_t bytes) {
  if (installed_injector.load(std::memory_order_relaxed) == nullptr) return false;
  asking.fetch_add(1, std::memory_order_seq_cst);
  FaultInjector* injector = installed_injector.load(std::memory_order_seq_cst);
  const bool refused = injector != nullptr && injector->refuses_memory(bytes);
  asking.fetch_sub(1, std::memory_order_release);
  return refused;
}

}  // namespace internal

ScopedFaultInjector::ScopedFaultInjector(FaultInjector& injector) {
  FaultInjector* expected = nullptr;
  PMSTORE_CHECK(
      internal::installed_injector.compare_exchange_strong(expected, &injector),
      "one fault injector at a time: numbered fault points would not be numbers otherwise");
}

ScopedFaultInjector::~ScopedFaultInjector() {
  internal::installed_injector.store(nullptr, std::memory_order_seq_cst);
  while (internal::asking.load(std::memory_order_seq_cst) != 0) sched_yield();
}

FaultDecision FailNthRequest::on_request(const FaultPoint& point) {
  const FaultSide side = point.connector ? FaultSide::kConnector : FaultSide::kListener;
  if (side_ != FaultSide::kBoth && side_ != side) return {};
  return seen_.fetch_add(1, std::memory_order_acq_rel) + 1 == n_ ? fault_ : FaultDecision{};
}

}  // namespace pmstore::fabric
