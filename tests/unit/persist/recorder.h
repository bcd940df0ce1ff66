// An Observer that writes down every step, for tests that assert the exact sequence.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "persist/memory.h"

namespace pmstore::persist {

class Recorder final : public Observer {
 public:
  explicit Recorder(Memory& memory) : memory_(memory) { memory_.set_observer(this); }
  ~Recorder() override { memory_.set_observer(nullptr); }

  void on_store(const void* to, const void*, size_t bytes, bool non_temporal) override {
    steps.push_back(
        fmt::format("{} {}+{}", non_temporal ? "stream" : "store", memory_.offset_of(to), bytes));
  }
  void on_flush(const void* from, size_t bytes) override {
    steps.push_back(fmt::format("flush {}+{}", memory_.offset_of(from), bytes));
  }
  void on_drain() override { steps.push_back("drain"); }

  std::vector<std::string> take() { return std::exchange(steps, {}); }

  std::vector<std::string> steps;

 private:
  Memory& memory_;
};

}  // namespace pmstore::persist
