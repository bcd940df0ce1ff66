#include "tests/scenario/fabric/target_cpu.h"

namespace pmstore::scenario {

namespace {

// Between two turns; time has to pass also where it is virtual.
constexpr uint64_t kTurnNs = 1'000;

uint64_t of_equal_bytes(uint64_t number) { return (number & 0xff) * 0x0101010101010101; }

bool inside(uint64_t offset, uint64_t bytes, size_t size) {
  return offset % 8 == 0 && offset <= size && bytes <= size - offset;
}

}  // namespace

std::unique_ptr<TargetCpu> TargetCpu::start(base::Executor& executor, std::span<std::byte> memory,
                                            const CpuTask& task) {
  if (!inside(task.area, task.area_bytes, memory.size()) || !inside(task.word, 8, memory.size())) {
    return nullptr;
  }
  auto cpu = std::make_unique<TargetCpu>();
  cpu->state_->memory = memory;
  cpu->state_->task = task;
  executor.spawn(run(executor, cpu->state_));
  return cpu;
}

base::Task<void> TargetCpu::run(base::Executor& executor, std::shared_ptr<State> state) {
  while (!state->stopped) {
    state->turn();
    ++state->report.turns;
    co_await executor.sleep_for(kTurnNs);
  }
}

void TargetCpu::State::turn() {
  const uint64_t number = report.turns + 1;
  switch (task.work) {
    case CpuWork::kRaise:
    case CpuWork::kRaiseBytes: {
      const uint64_t value = task.work == CpuWork::kRaise ? number : of_equal_bytes(number);
      for (uint64_t at = 0; at < task.area_bytes; at += 8) {
        __atomic_store_n(word_at(task.area + at), value, __ATOMIC_RELEASE);
      }
      return;
    }
    case CpuWork::kWatchOrder:
      return look_at_least(__atomic_load_n(word_at(task.word), __ATOMIC_ACQUIRE));
    case CpuWork::kWatchWords: return look_at_words();
    case CpuWork::kAdd: __atomic_fetch_add(word_at(task.word), 1, __ATOMIC_SEQ_CST); return;
  }
}

void TargetCpu::State::look_at_least(uint64_t wanted) {
  for (uint64_t at = 0; at < task.area_bytes; at += 8) {
    const uint64_t found = __atomic_load_n(word_at(task.area + at), __ATOMIC_ACQUIRE);
    if (found < wanted) return count_violation(task.area + at, found, wanted);
  }
}

void TargetCpu::State::look_at_words() {
  for (uint64_t at = 0; at < task.area_bytes; at += 8) {
    const uint64_t found = __atomic_load_n(word_at(task.area + at), __ATOMIC_ACQUIRE);
    if (found != of_equal_bytes(found)) {
      return count_violation(task.area + at, found, of_equal_bytes(found));
    }
  }
}

void TargetCpu::State::count_violation(uint64_t offset, uint64_t found, uint64_t wanted) {
  if (report.violations++ > 0) return;
  report.first_offset = offset;
  report.first_found = found;
  report.first_wanted = wanted;
}

}  // namespace pmstore::scenario
