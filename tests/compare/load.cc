#include "tests/compare/load.h"

#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace pmstore::compare {
namespace {

uint64_t ns_of(const timeval& time) {
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000u +
         static_cast<uint64_t>(time.tv_usec) * 1000u;
}

}  // namespace

void Tally::merge(const Tally& other) {
  latency_ns.merge(other.latency_ns);
  conflicts += other.conflicts;
}

Cost Cost::until_now() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return {ns_of(usage.ru_utime), ns_of(usage.ru_stime), static_cast<uint64_t>(usage.ru_nvcsw),
          static_cast<uint64_t>(usage.ru_nivcsw)};
}

Cost Cost::operator-(const Cost& earlier) const {
  return {user_ns - earlier.user_ns, system_ns - earlier.system_ns,
          voluntary_switches - earlier.voluntary_switches,
          involuntary_switches - earlier.involuntary_switches};
}

void StartGate::arrive(std::function<void()> opened) {
  const std::lock_guard lock(mutex_);
  if (opened) opened_.push_back(std::move(opened));
  ++arrived_;
  changed_.notify_all();
}

void StartGate::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return is_open(); });
}

void StartGate::finish() {
  std::unique_lock lock(mutex_);
  ++finished_;
  changed_.notify_all();
  changed_.wait(lock, [this] { return released_; });
}

void StartGate::wait_for_arrival(uint32_t threads) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this, threads] { return arrived_ == threads; });
}

void StartGate::wait_for_finish(uint32_t threads) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this, threads] { return finished_ == threads; });
}

void StartGate::release() {
  const std::lock_guard lock(mutex_);
  released_ = true;
  changed_.notify_all();
}

void StartGate::open() {
  const std::lock_guard lock(mutex_);
  start_ns_.store(monotonic_ns(), std::memory_order_release);
  changed_.notify_all();
  for (const auto& opened : opened_) opened();
}

uint64_t monotonic_ns() {
  timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return static_cast<uint64_t>(ts.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(ts.tv_nsec);
}

void write_key(char* to, uint64_t key) {
  for (size_t digit = kKeyBytes; digit > 0; --digit, key /= 10) {
    to[digit - 1] = static_cast<char>('0' + key % 10);
  }
}

void fail(const std::string& what, const std::string& why) {
  std::fprintf(stderr, "many_programs: %s: %s\n", what.c_str(), why.c_str());
  std::fflush(stderr);
  _exit(1);
}

}  // namespace pmstore::compare
