// RecoveryThreads: the threads that read the records of a pool, or its checkpoint, when a server
// starts. They exist only while they have work. Where the system gives fewer threads than are
// wanted, those that there are do all of it.
//
// Threads: run() from one thread at a time.
#pragma once

#include <algorithm>
#include <functional>
#include <system_error>
#include <thread>
#include <vector>

#include "base/workers.h"

namespace pmstore::tools {

class RecoveryThreads final : public base::Workers {
 public:
  // What a start divides has no more parts at a time.
  static constexpr size_t kMost = 64;
  // The caller of run() is one of them. 0: one for each core that this process may use, up to
  // kMost.
  explicit RecoveryThreads(size_t count)
      : count_(count > 0 ? count
                         : std::clamp<size_t>(std::thread::hardware_concurrency(), 1, kMost)) {}
  size_t count() const override { return count_; }
  void run(const std::function<void(size_t worker)>& work) override {
    std::vector<std::jthread> others;
    try {
      for (size_t i = 1; i < count_; ++i) others.emplace_back([&work, i] { work(i); });
    } catch (const std::system_error&) {
      // No more threads; what has no thread of its own is done by this one.
    }
    const size_t threads = others.size();
    work(0);
    for (size_t i = threads + 1; i < count_; ++i) work(i);
  }

 private:
  size_t count_;
};

}  // namespace pmstore::tools
