// RecoveryThreads: the threads that read the records of a pool when a server starts. They exist
// only while they have work.
//
// Threads: run() from one thread at a time.
#pragma once

#include <algorithm>
#include <functional>
#include <thread>
#include <vector>

#include "base/workers.h"

namespace pmstore::tools {

class RecoveryThreads final : public base::Workers {
 public:
  // The caller of run() is one of them. 0: one for each core that this process may use.
  explicit RecoveryThreads(size_t count)
      : count_(count > 0 ? count : std::max<size_t>(std::thread::hardware_concurrency(), 1)) {}
  size_t count() const override { return count_; }
  void run(const std::function<void(size_t worker)>& work) override {
    std::vector<std::jthread> others;
    for (size_t i = 1; i < count_; ++i) others.emplace_back([&work, i] { work(i); });
    work(0);
  }

 private:
  size_t count_;
};

}  // namespace pmstore::tools
