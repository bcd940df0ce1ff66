// When an executor in real time blocks, and what ends the block.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "base/executor.h"
#include "tests/harness/no_descriptors.h"
#include "tests/harness/patience.h"

namespace pmstore::base {
namespace {

// Counts how often it is armed; says whether it has something.
struct ArmedPoller final : Poller {
  size_t poll() override {
    ++polls;
    return 0;
  }
  bool arm() override {
    ++arms;
    return refusals == 0 || --refusals == 0;
  }
  void disarm() override { ++disarms; }
  uint64_t next_event_ns() const override { return next_ns; }
  int polls = 0, arms = 0, disarms = 0, refusals = 0;
  uint64_t next_ns = kNoEvent;
};

TEST(BlockingExecutor, APollerThatHasSomethingKeepsItFromBlocking) {
  RealClock clock;
  Executor executor(clock, {.poll = PollMode::kNever});
  ArmedPoller first, second;
  second.refusals = 5;
  executor.add_poller(&first);
  executor.add_poller(&second);
  auto sleep = [&]() -> Task<void> { co_await executor.sleep_for(2'000'000); };
  executor.run(sleep());
  EXPECT_EQ(second.refusals, 0);
  EXPECT_GE(second.arms, 5);
  EXPECT_EQ(first.arms, first.disarms) << "whoever armed is disarmed, also when another refused";
  EXPECT_EQ(second.disarms, second.arms - 4);
  executor.remove_poller(&first);
  executor.remove_poller(&second);
}

// Ends a block that nothing else has ended, so that a test fails instead of hanging.
struct Bound {
  Bound(Executor& executor, std::function<void()> act) : executor_(executor) {
    executor.spawn(give_up(std::move(act)));
  }
  const uint64_t too_long_ns = harness::patience_ns();
  bool reached = false;

 private:
  Task<void> give_up(std::function<void()> act) {
    co_await executor_.sleep_for(too_long_ns);
    reached = true;
    act();
  }
  Executor& executor_;
};

TEST(BlockingExecutor, APollersNextEventEndsTheBlock) {
  RealClock clock;
  Executor executor(clock, {.poll = PollMode::kNever});
  struct Due final : Poller {
    Due(Executor& executor, uint64_t due_ns)
        : list(executor), executor_(executor), due_ns_(due_ns) {}
    size_t poll() override {
      if (over || executor_.now_ns() < due_ns_) return 0;
      over = true;
      list.notify_all();
      return 1;
    }
    bool arm() override {
      ++arms;
      return true;
    }
    uint64_t next_event_ns() const override { return over ? kNoEvent : due_ns_; }
    WaitList list;
    bool over = false;
    int arms = 0;

   private:
    Executor& executor_;
    const uint64_t due_ns_;
  } due(executor, clock.now_ns() + 50'000'000);
  executor.add_poller(&due);
  Bound bound(executor, [&] { due.list.notify_all(); });
  auto wait = [&]() -> Task<void> {
    while (!due.over && !bound.reached) co_await due.list.wait();
  };
  executor.run(wait());
  EXPECT_FALSE(bound.reached);
  EXPECT_LT(due.arms, 1000) << "it blocks until then, it does not spin";
  executor.remove_poller(&due);
}

TEST(BlockingExecutor, AnotherThreadEndsTheBlock) {
  RealClock clock;
  Executor executor(clock, {.poll = PollMode::kNever});
  WaitList told(executor);
  int calls = 0;
  Bound bound(executor, [&] { told.notify_all(); });
  auto until_called = [&](int times) -> Task<void> {
    while (calls < times && !bound.reached) co_await told.wait();
  };
  for (int time = 1; time <= 20 && !bound.reached; ++time) {
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      executor.post_remote([&] {
        ++calls;
        told.notify_all();
      });
    });
    executor.run(until_called(time));
    other.join();
  }
  EXPECT_FALSE(bound.reached) << "it was not woken";
}

// Does something in its second turn, in which nothing else happens, behind the executor's back.
struct ActingPoller final : Poller {
  ActingPoller(Executor& executor, std::function<void()> act)
      : executor_(executor), act_(std::move(act)) {
    executor_.add_poller(this);
  }
  ~ActingPoller() override { executor_.remove_poller(this); }
  size_t poll() override {
    if (++turns_ == 2) act_();
    return 0;
  }
  bool arm() override { return true; }

 private:
  Executor& executor_;
  std::function<void()> act_;
  int turns_ = 0;
};

TEST(BlockingExecutor, WorkOfTheTurnBeforeKeepsItFromBlocking) {
  RealClock clock;
  Executor executor(clock, {.poll = PollMode::kNever});
  WaitList told(executor);
  bool called = false;
  ActingPoller poller(executor, [&] {
    executor.post_remote([&] {
      called = true;
      told.notify_all();
    });
  });
  Bound bound(executor, [&] { told.notify_all(); });
  auto until_called = [&]() -> Task<void> {
    while (!called && !bound.reached) co_await told.wait();
  };
  executor.run(until_called());
  EXPECT_FALSE(bound.reached);
}

TEST(BlockingExecutor, AStopInTheTurnBeforeKeepsItFromBlocking) {
  RealClock clock;
  Executor executor(clock, {.poll = PollMode::kNever});
  ActingPoller poller(executor, [&] { executor.request_stop(); });
  const uint64_t before_ns = clock.now_ns();
  Bound bound(executor, [] {});
  executor.run_until_stopped();
  EXPECT_LT(clock.now_ns() - before_ns, bound.too_long_ns);
}

TEST(BlockingExecutor, PollAlwaysNeverBlocks) {
  RealClock clock;
  Executor executor(clock, {.poll = PollMode::kAlways});
  ArmedPoller poller;
  executor.add_poller(&poller);
  auto sleep = [&]() -> Task<void> { co_await executor.sleep_for(2'000'000); };
  executor.run(sleep());
  EXPECT_EQ(poller.arms, 0);
  executor.remove_poller(&poller);
}

struct NotedEvent final : Watched {
  void on_ready(uint32_t) override { ++times; }
  int times = 0;
};

TEST(BlockingExecutor, AWatchedDescriptorEndsTheBlockAndABusyExecutorLooksAtItToo) {
  for (const PollMode mode : {PollMode::kNever, PollMode::kAdaptive, PollMode::kAlways}) {
    RealClock clock;
    Executor executor(clock, {.poll = mode});
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    const FileDescriptor out(ends[0]), in(ends[1]);
    NotedEvent event;
    ASSERT_TRUE(executor.watch(out.get(), EPOLLIN, event));
    std::thread writer([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      EXPECT_EQ(write(in.get(), "x", 1), 1);
    });
    auto until_noted = [&]() -> Task<void> {
      while (event.times == 0) co_await executor.yield();
    };
    executor.run(until_noted());  // always something ready
    writer.join();
    event.times = 0;
    char byte;
    EXPECT_EQ(read(out.get(), &byte, 1), 1);
    EXPECT_EQ(write(in.get(), "x", 1), 1);
    auto sleep = [&]() -> Task<void> { co_await executor.sleep_for(1'000'000); };
    executor.run(sleep());
    EXPECT_GT(event.times, 0);
    executor.unwatch(out.get());
  }
}

// Nothing can wake it: it has to look by itself, which must not become a busy loop.
TEST(BlockingExecutor, WithoutADescriptorItSleepsInStepsAndStillServes) {
  constexpr uint64_t kStepNs = 200'000;
  RealClock clock;
  Executor executor(clock, {.poll = PollMode::kNever});
  ArmedPoller poller;
  executor.add_poller(&poller);
  WaitList told(executor);
  bool called = false;
  auto until_called = [&]() -> Task<void> {
    while (!called) co_await told.wait();
  };
  auto sleep = [&](uint64_t time_ns) -> Task<void> { co_await executor.sleep_for(time_ns); };

  std::optional<harness::NoDescriptors> none(std::in_place);
  NotedEvent event;
  EXPECT_EQ(executor.watch(0, EPOLLIN, event).code(), ErrorCode::kIo);
  const uint64_t before_ns = clock.now_ns();
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    executor.post_remote([&] {
      called = true;
      told.notify_all();
    });
  });
  executor.run(until_called());
  const uint64_t took_ns = clock.now_ns() - before_ns;
  EXPECT_GE(took_ns, 20'000'000u);
  EXPECT_LE(static_cast<uint64_t>(poller.arms), took_ns / kStepNs + 5) << "it does not sleep";
  // A machine that stalls makes one step long, but not each time.
  int steps = 0;
  for (const uint64_t from_ns = clock.now_ns();
       steps < 5 && clock.now_ns() - from_ns < harness::patience_ns();) {
    const int before = poller.arms;
    executor.run(sleep(20'000'000));
    steps = poller.arms - before;
  }
  EXPECT_GE(steps, 5) << "one step is long";
  EXPECT_EQ(poller.disarms, poller.arms);
  other.join();
  none.reset();

  const int arms = poller.arms;
  executor.run(sleep(50'000'000));
  EXPECT_LE(poller.arms - arms, 5) << "with descriptors again it blocks as usual";
  executor.remove_poller(&poller);
}

}  // namespace
}  // namespace pmstore::base
