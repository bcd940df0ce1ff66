// Workers: the threads among which one job is divided, for parts of the project that start none.
//
// Who has threads to give (pmstored) implements it; OneWorker is the calling thread alone.
// Threads: run() from one thread at a time.
#pragma once

#include <cstddef>
#include <functional>

namespace pmstore::base {

class Workers {
 public:
  virtual ~Workers() = default;
  // At least 1.
  virtual size_t count() const = 0;
  // Calls work(0) to work(count() - 1), each once, possibly at the same time and in any threads.
  // Returns when all of them have returned.
  virtual void run(const std::function<void(size_t worker)>& work) = 0;
};

class OneWorker final : public Workers {
 public:
  size_t count() const override { return 1; }
  void run(const std::function<void(size_t worker)>& work) override { work(0); }
};

}  // namespace pmstore::base
