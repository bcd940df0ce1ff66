// BenchControl: when a benchmark stops, also by a signal.
#pragma once

#include <atomic>
#include <csignal>
#include <cstdint>

namespace pmstore::tools {

// Says when to stop. Any thread.
class BenchControl {
 public:
  // True after the last moment, after stop(), and after SIGINT or SIGTERM (see StopOnSignal).
  bool over(uint64_t now_ns) const {
    return now_ns >= deadline_ns_.load(std::memory_order_relaxed) || stopped();
  }
  bool stopped() const { return stopped_.load(std::memory_order_relaxed); }
  void stop() { stopped_.store(true); }
  void set_deadline(uint64_t time_ns) { deadline_ns_.store(time_ns); }

 private:
  std::atomic<uint64_t> deadline_ns_{UINT64_MAX};
  std::atomic<bool> stopped_{false};
};

// While an object exists, the first SIGINT or SIGTERM ends the work in order; a second one ends the
// program immediately. At most one object exists at a time.
class StopOnSignal {
 public:
  explicit StopOnSignal(BenchControl& control);
  ~StopOnSignal();
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;

  // Whether a signal has arrived, for any of the objects so far.
  static bool interrupted();

 private:
  struct sigaction old_int_ {};
  struct sigaction old_term_ {};
};

}  // namespace pmstore::tools
