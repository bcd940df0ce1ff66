// Load: what one program of many_programs does, when it does it, and what it has measured.
//
// The main thread starts one thread for each of LoadOptions::threads. Each of them connects, waits
// at the StartGate, works, and leaves its measurements in its own Tally.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "base/histogram.h"

namespace pmstore::compare {

enum class Operation : uint8_t { kPut, kGet, kAppend, kIdle, kFill };

struct LoadOptions {
  std::string side = "store";  // store, redis or echo
  std::string address;         // a URI of the store; else HOST:PORT
  Operation operation = Operation::kPut;
  uint32_t connections = 1;  // of all threads; each has one outstanding command (per coroutine)
  uint32_t coroutines = 1;   // of the store, on each connection
  uint32_t threads = 1;
  uint64_t keys = 1000;
  uint32_t bytes = 64;  // of a value, or of an appended entry
  double seconds = 2;
  uint64_t ops = 0;  // 0: until the time is over; else so many on each connection and coroutine
  uint64_t silence_ms = 0;     // before each operation
  bool warm = false;           // each of the store's clients has read every key before it begins
  uint32_t request_bytes = 0;  // of the echo side, on the wire
  uint32_t reply_bytes = 0;

  uint32_t connections_of(uint32_t thread) const {
    return connections / threads + (thread < connections % threads ? 1 : 0);
  }
};

// What one thread has done.
struct Tally {
  base::Histogram latency_ns;
  uint64_t conflicts = 0;

  void merge(const Tally& other);
};

// What the whole process has cost until now.
struct Cost {
  uint64_t user_ns = 0;
  uint64_t system_ns = 0;
  uint64_t voluntary_switches = 0;
  uint64_t involuntary_switches = 0;

  static Cost until_now();
  Cost operator-(const Cost& earlier) const;
};

// Keeps the threads until all of them, and the caller of the program, are ready, and again until
// all have done their work, so that the main thread can measure what they still have open.
class StartGate {
 public:
  // Of a thread that works: it is ready. Then it waits, or goes on with something else until the
  // main thread, which opens the gate, calls `opened`.
  void arrive(std::function<void()> opened = {});
  void wait();
  // It has done its work. Returns when the main thread has measured.
  void finish();
  bool is_open() const { return start_ns_.load(std::memory_order_acquire) != 0; }
  uint64_t start_ns() const { return start_ns_.load(std::memory_order_acquire); }

  // Of the main thread.
  void wait_for_arrival(uint32_t threads);
  void open();
  void wait_for_finish(uint32_t threads);
  void release();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint32_t arrived_ = 0;
  uint32_t finished_ = 0;
  bool released_ = false;
  std::vector<std::function<void()>> opened_;
  std::atomic<uint64_t> start_ns_{0};
};

// Whether a worker that has done `done` operations since the gate opened has to end.
inline bool is_over(const LoadOptions& options, const StartGate& gate, uint64_t done,
                    uint64_t now_ns) {
  if (options.ops != 0) return done >= options.ops;
  return static_cast<double>(now_ns - gate.start_ns()) >= options.seconds * 1e9;
}

uint64_t monotonic_ns();

// The keys are 16 digits.
inline constexpr size_t kKeyBytes = 16;
void write_key(char* to, uint64_t key);

// Prints one line, `what`: `why`, and ends the program.
[[noreturn]] void fail(const std::string& what, const std::string& why);

}  // namespace pmstore::compare
