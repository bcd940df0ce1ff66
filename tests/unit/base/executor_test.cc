#include "base/executor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace pmstore::base {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

class VirtualExecutor : public ::testing::Test {
 protected:
  VirtualClock clock_;
  Executor executor_{clock_};
  std::string trace_;

  Task<void> sleep_then_note(uint64_t duration_ns, char letter) {
    co_await executor_.sleep_for(duration_ns);
    trace_ += letter;
  }
  Task<void> yield_then_note(int times, char letter) {
    for (int i = 0; i < times; ++i) {
      co_await executor_.yield();
      trace_ += letter;
    }
  }
};

TEST_F(VirtualExecutor, TimersFireInTimeOrderAndEqualTimesInTheOrderSet) {
  executor_.spawn(sleep_then_note(30, 'd'));
  executor_.spawn(sleep_then_note(10, 'a'));
  executor_.spawn(sleep_then_note(20, 'b'));
  executor_.spawn(sleep_then_note(20, 'c'));
  executor_.run(sleep_then_note(40, 'e'));
  EXPECT_EQ(trace_, "abcde");
  EXPECT_EQ(clock_.now_ns(), 40u);
}

TEST_F(VirtualExecutor, SleepingTakesVirtualTimeOnly) {
  const auto start = std::chrono::steady_clock::now();
  executor_.run(sleep_then_note(1'000'000 * kSecond, 'x'));
  EXPECT_EQ(clock_.now_ns(), 1'000'000 * kSecond);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

TEST_F(VirtualExecutor, ASleepUntilThePastEndsAtOnce) {
  executor_.run(sleep_then_note(100, 'a'));
  auto until = [this]() -> Task<void> { co_await executor_.sleep_until(50); };
  executor_.run(until());
  EXPECT_EQ(clock_.now_ns(), 100u);
}

TEST_F(VirtualExecutor, YieldLetsTheOthersRunFirst) {
  executor_.spawn(yield_then_note(3, 'a'));
  executor_.spawn(yield_then_note(3, 'b'));
  executor_.run(sleep_then_note(1, '.'));
  EXPECT_EQ(trace_, "ababab.");
}

TEST_F(VirtualExecutor, ACoroutineThatSleepsForNoTimeDoesNotStarveTheRest) {
  bool stop = false;
  auto spin = [this, &stop]() -> Task<void> {
    while (!stop) co_await executor_.sleep_for(0);
  };
  executor_.spawn(spin());
  executor_.run(yield_then_note(5, 'y'));
  EXPECT_EQ(trace_, "yyyyy");
  stop = true;
  while (executor_.spawned() > 0) executor_.run_once();
}

TEST_F(VirtualExecutor, AYieldingCoroutineDoesNotStarveTimers) {
  bool stop = false;
  auto spin = [this, &stop]() -> Task<void> {
    while (!stop) co_await executor_.yield();
  };
  executor_.spawn(spin());
  executor_.run(sleep_then_note(0, 't'));
  EXPECT_EQ(trace_, "t");
  stop = true;
  while (executor_.spawned() > 0) executor_.run_once();
}

TEST_F(VirtualExecutor, SpawnedTasksAreKeptUntilTheyFinish) {
  executor_.spawn(sleep_then_note(5, 'a'));
  executor_.spawn(sleep_then_note(6, 'b'));
  executor_.spawn(sleep_then_note(7, 'c'));
  EXPECT_EQ(executor_.spawned(), 3u);
  EXPECT_EQ(trace_, "");  // not even started
  executor_.run(sleep_then_note(6, 'r'));
  EXPECT_EQ(trace_, "arb");  // r slept before b did: spawned tasks start in the next turn
  EXPECT_EQ(executor_.spawned(), 1u);
  executor_.run(sleep_then_note(1, 's'));
  EXPECT_EQ(executor_.spawned(), 0u);
}

TEST_F(VirtualExecutor, TheSameSeedGivesTheSameRun) {
  auto run_once = [](uint64_t seed) {
    VirtualClock clock;
    Executor executor(clock, {.seed = seed});
    std::string trace;
    auto walk = [&](char letter) -> Task<void> {
      for (int i = 0; i < 20; ++i) {
        co_await executor.sleep_for(executor.random().below(100));
        trace += letter;
      }
    };
    for (char letter = 'a'; letter < 'f'; ++letter) executor.spawn(walk(letter));
    executor.run(walk('z'));
    return trace;
  };
  EXPECT_EQ(run_once(1), run_once(1));
  EXPECT_NE(run_once(1), run_once(2));
}

TEST_F(VirtualExecutor, NothingLeftToWaitForIsABug) {
  WaitList never(executor_);
  auto wait = [&]() -> Task<void> { co_await never.wait(); };
  EXPECT_DEATH(executor_.run(wait()), "nothing can ever happen");
}

TEST_F(VirtualExecutor, TheExecutorDestroysWhatItStillHolds) {
  auto alive = std::make_shared<int>();
  WaitList list(executor_);
  {
    VirtualClock clock;
    Executor executor(clock);
    WaitList inner(executor);
    auto wait = [](Executor* on, WaitList* in, int kind, std::shared_ptr<int>) -> Task<void> {
      if (kind == 0) co_await on->sleep_for(1000);
      if (kind == 1) co_await in->wait();
      if (kind == 2) co_await on->yield();
    };
    for (int kind = 0; kind < 3; ++kind) executor.spawn(wait(&executor, &inner, kind, alive));
    EXPECT_EQ(alive.use_count(), 4);
    executor.run_once();
    executor.spawn(wait(&executor, &inner, 0, alive));  // destroyed before it starts
  }
  EXPECT_EQ(alive.use_count(), 1);
}

// A destroyed coroutine must not be resumed, whatever it was waiting for.
class Destroyed : public VirtualExecutor {
 protected:
  template <typename Wait>
  void start_and_destroy(Wait wait) {
    Task<void> task = wait();
    task.start();
    EXPECT_FALSE(task.done());
  }
};

TEST_F(Destroyed, WhileSleeping) {
  start_and_destroy([this]() { return sleep_then_note(10, '!'); });
  executor_.run(sleep_then_note(20, '.'));
  EXPECT_EQ(trace_, ".");
}

TEST_F(Destroyed, WhileSleepingAmongOthersThatStillFireInOrder) {
  for (int i = 0; i < 20; ++i) {
    executor_.spawn(sleep_then_note(static_cast<uint64_t>(100 - i), static_cast<char>('a' + i)));
  }
  executor_.run_once();
  start_and_destroy([this]() { return sleep_then_note(1, '!'); });
  executor_.run(sleep_then_note(200, '.'));
  EXPECT_EQ(trace_, "tsrqponmlkjihgfedcba.");
}

TEST_F(Destroyed, WhileYielding) {
  start_and_destroy([this]() { return yield_then_note(1, '!'); });
  executor_.run(yield_then_note(3, '.'));
  EXPECT_EQ(trace_, "...");
}

TEST_F(Destroyed, WhileNotifiedButNotYetResumed) {
  WaitList list(executor_);
  auto wait = [&]() -> Task<void> {
    co_await list.wait();
    trace_ += '!';
  };
  Task<void> task = wait();
  task.start();
  list.notify_one();
  task = {};
  executor_.run(yield_then_note(2, '.'));
  EXPECT_EQ(trace_, "..");
}

TEST_F(Destroyed, AfterItsWaitListWasDestroyed) {
  auto list = std::make_unique<WaitList>(executor_);
  auto wait = [](WaitList* in) -> Task<void> { co_await in->wait(); };
  Task<void> task = wait(list.get());
  task.start();
  list.reset();
  task = {};
  executor_.run(yield_then_note(1, '.'));
}

class Waiting : public VirtualExecutor {
 protected:
  WaitList list_{executor_};
  Task<void> wait_then_note(char letter) {
    co_await list_.wait();
    trace_ += letter;
  }
};

TEST_F(Waiting, NotifyOneResumesTheOneThatWaitedLongest) {
  for (const char letter : {'a', 'b', 'c'}) executor_.spawn(wait_then_note(letter));
  executor_.run_once();
  EXPECT_EQ(list_.waiting(), 3u);
  list_.notify_one();
  EXPECT_EQ(trace_, "");  // not from inside notify
  EXPECT_EQ(list_.waiting(), 2u);
  executor_.run_once();
  EXPECT_EQ(trace_, "a");
}

TEST_F(Waiting, NotifyAllResumesThoseThatWaitNow) {
  auto wait_twice = [this]() -> Task<void> {
    co_await list_.wait();
    trace_ += '1';
    co_await list_.wait();
    trace_ += '2';
  };
  executor_.spawn(wait_twice());
  executor_.spawn(wait_then_note('a'));
  executor_.run_once();
  list_.notify_all();
  executor_.run_once();
  EXPECT_EQ(trace_, "1a");
  EXPECT_EQ(list_.waiting(), 1u);
  list_.notify_all();
  executor_.run_once();
  EXPECT_EQ(trace_, "1a2");
}

TEST_F(Waiting, NotifiedButDestroyedPassesTheNotificationOn) {
  Task<void> given_up = wait_then_note('a');
  given_up.start();
  executor_.spawn(wait_then_note('b'));
  executor_.spawn(wait_then_note('c'));
  executor_.run_once();
  list_.notify_one();
  given_up = {};
  executor_.run_once();
  EXPECT_EQ(trace_, "b");
  EXPECT_EQ(list_.waiting(), 1u);
}

TEST_F(Waiting, ListThatGoesBeforeTheNotifiedOneRunsIsNotTouchedAgain) {
  auto list = std::make_unique<WaitList>(executor_);
  auto wait = [](WaitList* in) -> Task<void> { co_await in->wait(); };
  Task<void> resumed = wait(list.get());
  Task<void> destroyed = wait(list.get());
  resumed.start();
  destroyed.start();
  list->notify_one();
  list->notify_one();
  list.reset();
  destroyed = {};
  executor_.run_once();
  EXPECT_TRUE(resumed.done());
}

TEST_F(Waiting, NotifyingNobodyIsNotRemembered) {
  list_.notify_one();
  list_.notify_all();
  executor_.spawn(wait_then_note('a'));
  executor_.run_once();
  executor_.run_once();
  EXPECT_EQ(trace_, "");
}

TEST_F(Waiting, OneInTheMiddleMayBeDestroyed) {
  executor_.spawn(wait_then_note('a'));
  executor_.run_once();
  {
    Task<void> middle = wait_then_note('!');
    middle.start();
    executor_.spawn(wait_then_note('b'));
    executor_.run_once();
    EXPECT_EQ(list_.waiting(), 3u);
  }
  EXPECT_EQ(list_.waiting(), 2u);
  list_.notify_all();
  executor_.run_once();
  EXPECT_EQ(trace_, "ab");
}

TEST_F(VirtualExecutor, MoreReadyCoroutinesThanTheQueueHadRoomForKeepTheirOrder) {
  std::vector<int> order;
  auto note = [&](int number) -> Task<void> {
    co_await executor_.yield();
    order.push_back(number);
  };
  for (int i = 0; i < 10; ++i) executor_.spawn(note(-1));
  executor_.run_once();
  executor_.run_once();  // the ring now starts in its middle
  order.clear();
  for (int i = 0; i < 1000; ++i) executor_.spawn(note(i));
  executor_.run(yield_then_note(3, '.'));
  ASSERT_EQ(order.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

class CountingPoller : public Poller {
 public:
  CountingPoller(Executor& executor, int limit) : executor_(executor), limit_(limit) {}
  bool arm() override { return true; }
  size_t poll() override {
    if (++polls == limit_) {
      executor_.remove_poller(this);
      if (next != nullptr) executor_.add_poller(next);
    }
    return 1;
  }
  int polls = 0;
  Poller* next = nullptr;

 private:
  Executor& executor_;
  const int limit_;
};

TEST_F(VirtualExecutor, PollersMayBeAddedAndRemovedInsidePoll) {
  CountingPoller first(executor_, 2), second(executor_, 3), third(executor_, 1000);
  first.next = &third;
  executor_.add_poller(&first);
  executor_.add_poller(&second);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(executor_.run_once());
  EXPECT_EQ(first.polls, 2);
  EXPECT_EQ(second.polls, 3);
  EXPECT_EQ(third.polls, 9);  // added in the second round, and polled in it
  executor_.remove_poller(&third);
  executor_.remove_poller(&third);  // removing twice is harmless
  EXPECT_FALSE(executor_.run_once());
}

class RemovesAnother : public Poller {
 public:
  RemovesAnother(Executor& executor, Poller* victim) : executor_(executor), victim_(victim) {}
  bool arm() override { return true; }
  size_t poll() override {
    executor_.remove_poller(victim_);
    return 0;
  }

 private:
  Executor& executor_;
  Poller* victim_;
};

TEST_F(VirtualExecutor, APollerRemovedByAnOtherIsNotPolledAgain) {
  CountingPoller before(executor_, 1000), after(executor_, 1000);
  RemovesAnother removes_after(executor_, &after), removes_before(executor_, &before);
  for (Poller* poller :
       std::initializer_list<Poller*>{&before, &removes_after, &removes_before, &after}) {
    executor_.add_poller(poller);
  }
  executor_.run_once();
  executor_.run_once();
  EXPECT_EQ(before.polls, 1);
  EXPECT_EQ(after.polls, 0);
}

class RealExecutor : public ::testing::Test {
 protected:
  RealClock clock_;
  Executor executor_{clock_};
};

TEST_F(RealExecutor, SleepsAtLeastAsLongAsAsked) {
  auto sleep = [this](uint64_t duration_ns) -> Task<void> {
    co_await executor_.sleep_for(duration_ns);
  };
  for (const uint64_t duration_ns : {uint64_t{0}, uint64_t{100'000}, uint64_t{5'000'000}}) {
    const uint64_t start = clock_.now_ns();
    executor_.run(sleep(duration_ns));
    EXPECT_GE(clock_.now_ns() - start, duration_ns);
    EXPECT_LT(clock_.now_ns() - start, 20 * kSecond);
  }
}

TEST_F(RealExecutor, TimersFireWhileSomebodyIsAlwaysReady) {
  bool stop = false;
  auto spin = [&]() -> Task<void> {
    while (!stop) co_await executor_.yield();
  };
  executor_.spawn(spin());
  auto sleep = [&]() -> Task<void> { co_await executor_.sleep_for(1'000'000); };
  executor_.run(sleep());
  stop = true;
  while (executor_.spawned() > 0) executor_.run_once();
}

TEST_F(RealExecutor, RemoteWorkRunsInOrderOnTheExecutorsThread) {
  constexpr int kItems = 1000;
  std::vector<int> order;  // touched by the executor's thread only
  std::thread::id ran_on;
  std::thread remote([&] {
    for (int i = 0; i < kItems; ++i) {
      executor_.post_remote([&order, &ran_on, i] {
        order.push_back(i);
        ran_on = std::this_thread::get_id();
      });
    }
    executor_.post_remote([this] { executor_.request_stop(); });
  });
  executor_.run_until_stopped();
  remote.join();
  ASSERT_EQ(order.size(), static_cast<size_t>(kItems));
  for (int i = 0; i < kItems; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
  EXPECT_EQ(ran_on, std::this_thread::get_id());
}

TEST_F(RealExecutor, RemoteWorkWakesACoroutine) {
  WaitList list(executor_);
  bool ready = false;
  auto wait = [&]() -> Task<bool> {
    while (!ready) co_await list.wait();
    co_return true;
  };
  std::thread remote([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // the executor is idle by then
    executor_.post_remote([&] {
      ready = true;
      list.notify_all();
    });
  });
  EXPECT_TRUE(executor_.run(wait()));
  remote.join();
}

TEST_F(RealExecutor, AnyThreadMayStopItAndTheRequestStays) {
  std::thread remote([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    executor_.request_stop();
  });
  executor_.run_until_stopped();
  remote.join();
  EXPECT_TRUE(executor_.stop_requested());
  executor_.run_until_stopped();  // returns at once
}

double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

TEST_F(RealExecutor, AnIdleOneLeavesTheProcessorToOthers) {
  // Processor time, not wall time. It spins for 20 us at most, then blocks until the timer.
  auto sleep = [&]() -> Task<void> { co_await executor_.sleep_for(300'000'000); };
  const double before_s = processor_seconds();
  executor_.run(sleep());
  EXPECT_LT(processor_seconds() - before_s, 0.05);
}

TEST(VirtualClockDeathTest, TimeNeverGoesBack) {
  VirtualClock clock;
  EXPECT_TRUE(clock.advance_to(10));
  EXPECT_TRUE(clock.advance_to(10));
  EXPECT_EQ(clock.now_ns(), 10u);
  EXPECT_DEATH(clock.advance_to(9), "never goes back");
}

TEST(RealClockTest, CannotBeAdvancedAndDoesNotGoBack) {
  RealClock clock;
  uint64_t last = clock.now_ns();
  EXPECT_FALSE(clock.advance_to(last + kSecond));
  for (int i = 0; i < 1000; ++i) {
    const uint64_t now = clock.now_ns();
    EXPECT_GE(now, last);
    last = now;
  }
}

}  // namespace
}  // namespace pmstore::base
