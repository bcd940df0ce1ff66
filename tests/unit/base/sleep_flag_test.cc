// No wake-up is lost: every interleaving of a sleeper and its wakers is explored, on a machine
// whose processors delay their stores (each has a store buffer, which empties in any order of
// addresses).
//
// The code under test is BasicSleepFlag itself, over words whose every operation is a step of the
// exploration. A process is a function; its state is the list of the results of its steps so far,
// and it is run again from the start for each further step. Flags with a defect must be caught.
#include "base/sleep_flag.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace pmstore::base {
namespace {

enum Address : uint8_t { kAsleep, kEvents, kAddresses };
enum class Op { kLoad, kStore, kExchange, kAdd, kFence, kRing, kAwaitRing };

struct Step {
  Op op;
  Address address;
  uint32_t value;
};
struct NextStep {  // thrown: the process is about to make this step
  Step step;
};

struct Store {
  Address address;
  uint32_t value;
};

struct Machine {
  std::array<uint32_t, kAddresses> memory{};
  uint32_t rings = 0;
  std::vector<std::vector<Store>> buffers;
  std::vector<std::vector<uint32_t>> histories;
};

struct Running {
  Machine* machine;
  size_t process;
  size_t replayed = 0;
  bool may_step;
};
Running* running = nullptr;

uint32_t perform(Machine& machine, size_t process, const Step& step) {
  std::vector<Store>& buffer = machine.buffers[process];
  uint32_t& cell = machine.memory[step.address];
  switch (step.op) {
    case Op::kLoad:
      for (size_t i = buffer.size(); i-- > 0;) {
        if (buffer[i].address == step.address) return buffer[i].value;
      }
      return cell;
    case Op::kStore: buffer.push_back({step.address, step.value}); return 0;
    case Op::kExchange: return std::exchange(cell, step.value);
    case Op::kAdd: return std::exchange(cell, cell + step.value);
    case Op::kFence: return 0;
    case Op::kRing: return machine.rings = 1;
    case Op::kAwaitRing: return std::exchange(machine.rings, 0);
  }
  return 0;
}

uint32_t step(Step next) {
  std::vector<uint32_t>& history = running->machine->histories[running->process];
  if (running->replayed < history.size()) return history[running->replayed++];
  if (!running->may_step) throw NextStep{next};
  running->may_step = false;
  history.push_back(perform(*running->machine, running->process, next));
  return history[running->replayed++];
}

struct ExploredWord {
  explicit ExploredWord(uint32_t) {}
  uint32_t load(std::memory_order) const { return step({Op::kLoad, kAsleep, 0}); }
  void store(uint32_t value, std::memory_order) { step({Op::kStore, kAsleep, value}); }
  uint32_t exchange(uint32_t value, std::memory_order) {
    return step({Op::kExchange, kAsleep, value});
  }
};
struct ExploredFence {
  void operator()() const { step({Op::kFence, kAsleep, 0}); }
};
struct NoFence {
  void operator()() const {}
};
using ExploredFlag = BasicSleepFlag<ExploredWord, ExploredFence>;

// Sleeps until it has seen `events`.
template <typename Flag>
void sleeper(uint32_t events) {
  Flag flag;
  uint32_t seen = 0;
  const auto look = [&seen] {
    const uint32_t now = step({Op::kLoad, kEvents, 0});
    return std::exchange(seen, now) != now;
  };
  while (seen < events) {
    if (look()) continue;
    flag.announce();
    if (!look()) step({Op::kAwaitRing, kAsleep, 0});
    flag.clear();
  }
}

template <typename Flag>
void waker(uint32_t events) {
  Flag flag;
  for (uint32_t i = 0; i < events; ++i) {
    step({Op::kAdd, kEvents, 1});
    if (flag.claim()) step({Op::kRing, kAsleep, 0});
  }
}

// The only waker, whose publication is a plain store: the flag's fence has to order it.
template <typename Flag>
void storing_waker(uint32_t events) {
  Flag flag;
  for (uint32_t i = 1; i <= events; ++i) {
    step({Op::kStore, kEvents, i});
    if (flag.claim()) step({Op::kRing, kAsleep, 0});
  }
}

void waker_that_claims_first() {
  ExploredFlag flag;
  const bool asleep = flag.claim();
  step({Op::kStore, kEvents, 1});
  if (asleep) step({Op::kRing, kAsleep, 0});
}

void sleeper_that_does_not_look_again() {
  ExploredFlag flag;
  while (step({Op::kLoad, kEvents, 0}) == 0) {
    flag.announce();
    step({Op::kAwaitRing, kAsleep, 0});
    flag.clear();
  }
}

// Process 0 is the sleeper.
class Explorer {
 public:
  explicit Explorer(std::vector<std::function<void()>> processes)
      : processes_(std::move(processes)) {
    Machine start;
    start.buffers.resize(processes_.size());
    start.histories.resize(processes_.size());
    explore(start);
  }
  size_t states() const { return visited_.size(); }
  size_t lost() const { return lost_; }  // states in which the sleeper sleeps for ever

 private:
  // Runs `process` from its start; makes its next step if `may_step`. Gives the step that follows;
  // nothing when the process is over.
  std::optional<Step> run(Machine& machine, size_t process, bool may_step) {
    Running now{&machine, process, 0, may_step};
    running = &now;
    try {
      processes_[process]();
    } catch (const NextStep& next) {
      return next.step;
    }
    return std::nullopt;
  }

  static bool enabled(const Machine& machine, size_t process, const Step& step) {
    if (step.op == Op::kAwaitRing) {
      return machine.rings > 0 && machine.buffers[process].empty();
    }
    const bool drains = step.op != Op::kLoad && step.op != Op::kStore;
    return !drains || machine.buffers[process].empty();
  }

  static std::string key(const Machine& machine) {
    std::string text;
    const auto add = [&text](uint32_t value) { text += std::to_string(value) + ','; };
    for (const uint32_t cell : machine.memory) add(cell);
    add(machine.rings);
    for (const auto& buffer : machine.buffers) {
      for (const Store& store : buffer)
        text += static_cast<char>('a' + store.address), add(store.value);
      text += ';';
    }
    for (const auto& history : machine.histories) {
      for (const uint32_t result : history) add(result);
      text += ';';
    }
    return text;
  }

  void explore(const Machine& machine) {
    if (!visited_.insert(key(machine)).second) return;
    bool any = false;
    bool asleep = false;
    for (size_t i = 0; i < processes_.size(); ++i) {
      Machine looked = machine;
      const std::optional<Step> next = run(looked, i, false);
      if (next && i == 0) asleep = true;
      if (next && enabled(machine, i, *next)) {
        Machine stepped = machine;
        run(stepped, i, true);
        any = true;
        explore(stepped);
      }
      for (Address address : {kAsleep, kEvents}) any |= leave_buffer(machine, i, address);
    }
    if (!any && asleep) ++lost_;
  }

  // The oldest store of `process` to `address` reaches the memory.
  bool leave_buffer(const Machine& machine, size_t process, Address address) {
    const auto& buffer = machine.buffers[process];
    for (size_t i = 0; i < buffer.size(); ++i) {
      if (buffer[i].address != address) continue;
      Machine stored = machine;
      stored.memory[address] = buffer[i].value;
      auto& rest = stored.buffers[process];
      rest.erase(rest.begin() + static_cast<ptrdiff_t>(i));
      explore(stored);
      return true;
    }
    return false;
  }

  std::vector<std::function<void()>> processes_;
  std::set<std::string> visited_;
  size_t lost_ = 0;
};

TEST(SleepFlag, NoWakeUpIsLostWithOneWaker) {
  const Explorer explorer(
      {[] { sleeper<ExploredFlag>(2); }, [] { storing_waker<ExploredFlag>(2); }});
  EXPECT_GT(explorer.states(), 100u);
  EXPECT_EQ(explorer.lost(), 0u);
}

TEST(SleepFlag, NoWakeUpIsLostWithTwoWakers) {
  const Explorer explorer({[] { sleeper<ExploredFlag>(2); }, [] { waker<ExploredFlag>(1); },
                           [] { waker<ExploredFlag>(1); }});
  EXPECT_GT(explorer.states(), 300u);
  EXPECT_EQ(explorer.lost(), 0u);
}

// The exploration itself must be able to fail.
TEST(SleepFlagCanary, WithoutFencesAWakeUpIsLost) {
  using Weak = BasicSleepFlag<ExploredWord, NoFence>;
  EXPECT_GT(Explorer({[] { sleeper<Weak>(1); }, [] { storing_waker<ExploredFlag>(1); }}).lost(),
            0u);
  EXPECT_GT(Explorer({[] { sleeper<ExploredFlag>(1); }, [] { storing_waker<Weak>(1); }}).lost(),
            0u);
}

TEST(SleepFlagCanary, ClaimingBeforePublishingLosesAWakeUp) {
  const Explorer explorer({[] { sleeper<ExploredFlag>(1); }, waker_that_claims_first});
  EXPECT_GT(explorer.lost(), 0u);
}

TEST(SleepFlagCanary, SleepingWithoutAnotherLookLosesAWakeUp) {
  const Explorer explorer(
      {sleeper_that_does_not_look_again, [] { storing_waker<ExploredFlag>(1); }});
  EXPECT_GT(explorer.lost(), 0u);
}

}  // namespace
}  // namespace pmstore::base
