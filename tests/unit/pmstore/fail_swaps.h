// FailSwaps: compare-swaps that break their connection, and loopbacks that cannot be made.
#pragma once

#include <cstdint>

#include "fabric/local/fault_injection.h"

namespace pmstore::testing {

// The compare-swaps from the first to the last, counted from 1, suffer `fault`.
class FailSwaps final : public fabric::FaultInjector {
 public:
  FailSwaps(uint64_t first, uint64_t last, fabric::Fault fault)
      : first_(first), last_(last), fault_(fault) {}
  fabric::FaultDecision on_request(const fabric::FaultPoint& point) override {
    if (point.request.op != fabric::OpCode::kCompareSwap) return {};
    ++seen_;
    return {seen_ >= first_ && seen_ <= last_ ? fault_ : fabric::Fault::kNone, 0};
  }
  bool fired() const { return seen_ >= first_; }

 private:
  const uint64_t first_;
  const uint64_t last_;
  const fabric::Fault fault_;
  uint64_t seen_ = 0;
};

// The n-th compare-swap breaks its connection after its effect; then so many loopbacks are refused.
class RefuseLoopbacks final : public fabric::FaultInjector {
 public:
  RefuseLoopbacks(uint64_t n, uint64_t refusals) : n_(n), left_(refusals) {}
  fabric::FaultDecision on_request(const fabric::FaultPoint& point) override {
    if (point.request.op != fabric::OpCode::kCompareSwap || ++seen_ != n_) return {};
    return {fabric::Fault::kBreakAfter, 0};
  }
  bool refuses_loopback() override {
    if (left_ == 0) return false;
    --left_;
    return true;
  }
  bool fired() const { return seen_ >= n_; }

 private:
  const uint64_t n_;
  uint64_t left_;
  uint64_t seen_ = 0;
};

}  // namespace pmstore::testing
