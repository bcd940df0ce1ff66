#include "pmstore/scan_repeats.h"

#include <algorithm>
#include <utility>

namespace pmstore {
namespace {

constexpr uint64_t kFirstRepeatPauseNs = 20'000'000;
constexpr uint64_t kLongestRepeatPauseNs = 5'000'000'000;

}  // namespace

ScanRepeats::ScanRepeats(base::Executor& executor)
    : executor_(executor),
      give_up_ns_(executor.now_ns() + kMostNs),
      pause_ns_(kFirstRepeatPauseNs) {}

base::Task<bool> ScanRepeats::pause() {
  if (executor_.now_ns() >= give_up_ns_) co_return false;
  co_await executor_.sleep_for(pause_ns_);
  pause_ns_ = std::min(2 * pause_ns_, kLongestRepeatPauseNs);
  co_return true;
}

}  // namespace pmstore
