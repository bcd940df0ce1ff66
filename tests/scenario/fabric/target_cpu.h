// TargetCpu: what the target's CPU does in the shared memory while connections read and write
// there. It takes turns with everything else of the target's executor.
//
// Ends when it is destroyed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/executor.h"
#include "base/task.h"
#include "tests/scenario/fabric/protocol.h"

namespace pmstore::scenario {

class TargetCpu {
 public:
  // nullptr when the task lies outside `memory`, which is borrowed.
  static std::unique_ptr<TargetCpu> start(base::Executor& executor, std::span<std::byte> memory,
                                          const CpuTask& task);
  ~TargetCpu() { state_->stopped = true; }

  const CpuReport& report() const { return state_->report; }
  // With kWatchOrder: no word of the area is below `wanted`.
  void look_at_least(uint64_t wanted) {
    if (state_->task.work == CpuWork::kWatchOrder) state_->look_at_least(wanted);
  }

 private:
  struct State {
    std::span<std::byte> memory;
    CpuTask task;
    CpuReport report{};
    bool stopped = false;

    uint64_t* word_at(uint64_t offset) const {
      return reinterpret_cast<uint64_t*>(memory.data() + offset);
    }
    void turn();
    void look_at_least(uint64_t wanted);
    void look_at_words();
    void count_violation(uint64_t offset, uint64_t found, uint64_t wanted);
  };
  static base::Task<void> run(base::Executor& executor, std::shared_ptr<State> state);

  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace pmstore::scenario
