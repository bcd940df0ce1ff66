#include "base/task.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/executor.h"

namespace pmstore::base {
namespace {

class TaskTest : public ::testing::Test {
 protected:
  VirtualClock clock_;
  Executor executor_{clock_};
};

Task<int> give(int value) { co_return value; }

Task<int> give_later(Executor& executor, int value) {
  co_await executor.yield();
  co_return value;
}

TEST_F(TaskTest, DoesNotStartBeforeItIsAwaited) {
  bool ran = false;
  auto set = [](bool* flag) -> Task<void> {
    *flag = true;
    co_return;
  };
  Task<void> task = set(&ran);
  EXPECT_FALSE(ran);
  executor_.run(std::move(task));
  EXPECT_TRUE(ran);
}

Task<std::unique_ptr<std::string>> give_box(Executor& executor, std::string text) {
  co_await executor.yield();
  co_return std::make_unique<std::string>(std::move(text));
}

TEST_F(TaskTest, GivesMoveOnlyValues) {
  const auto box = executor_.run(give_box(executor_, "a string too long for the short form"));
  EXPECT_EQ(*box, "a string too long for the short form");
}

Task<int> add(Executor& executor) {
  const int now = co_await give(1);
  const int later = co_await give_later(executor, 10);
  co_return now + later + co_await give(100);
}

TEST_F(TaskTest, AwaitsTasksThatFinishAtOnceAndLater) {
  EXPECT_EQ(executor_.run(add(executor_)), 111);
}

Task<int64_t> sum_at_once(int count) {
  int64_t sum = 0;
  for (int i = 0; i < count; ++i) sum += co_await give(1);
  co_return sum;
}

Task<int64_t> sum_later(Executor& executor, int count) {
  int64_t sum = 0;
  for (int i = 0; i < count; ++i) sum += co_await give_later(executor, 1);
  co_return sum;
}

TEST_F(TaskTest, AMillionAwaitsInARowNeedNoStack) {
  EXPECT_EQ(executor_.run(sum_at_once(1'000'000)), 1'000'000);
  EXPECT_EQ(executor_.run(sum_later(executor_, 1'000'000)), 1'000'000);
}

Task<int> depth_of(Executor& executor, int levels) {
  if (levels == 0) {
    co_await executor.yield();
    co_return 0;
  }
  const int below = co_await depth_of(executor, levels - 1);
  co_return below + 1;
}

TEST_F(TaskTest, NestsDeeply) { EXPECT_EQ(executor_.run(depth_of(executor_, 5'000)), 5'000); }

struct CountsItself {
  explicit CountsItself(int* count) : count_(count) { ++*count_; }
  ~CountsItself() { --*count_; }
  CountsItself(const CountsItself&) = delete;
  CountsItself& operator=(const CountsItself&) = delete;
  int* count_;
};

Task<void> hold_while_waiting(WaitList& list, int* alive) {
  const CountsItself held(alive);
  co_await list.wait();
  ADD_FAILURE() << "resumed after it was destroyed";
}

Task<void> hold_two(WaitList& list, int* alive) {
  const CountsItself held(alive);
  co_await hold_while_waiting(list, alive);
}

TEST_F(TaskTest, DestroyingAnUnfinishedTaskDestroysAllThatItHolds) {
  WaitList list(executor_);
  int alive = 0;
  {
    Task<void> task = hold_two(list, &alive);
    EXPECT_EQ(alive, 0);
    task.start();
    EXPECT_EQ(alive, 2);
    EXPECT_EQ(list.waiting(), 1u);
  }
  EXPECT_EQ(alive, 0);
  EXPECT_EQ(list.waiting(), 0u);
  list.notify_all();
  executor_.run_once();
}

TEST_F(TaskTest, DestroyingATaskThatNeverStartedDestroysItsArguments) {
  auto shared = std::make_shared<int>(1);
  auto keep = [](std::shared_ptr<int> argument) -> Task<int> { co_return *argument; };
  {
    Task<int> task = keep(shared);
    EXPECT_EQ(shared.use_count(), 2);
  }
  EXPECT_EQ(shared.use_count(), 1);
}

TEST_F(TaskTest, MoveAssignmentDestroysWhatWasThere) {
  WaitList list(executor_);
  int first = 0, second = 0;
  Task<void> task = hold_while_waiting(list, &first);
  task.start();
  task = hold_while_waiting(list, &second);
  EXPECT_EQ(first, 0);
  task.start();
  EXPECT_EQ(second, 1);
  task = {};
  EXPECT_EQ(second, 0);
}

TEST_F(TaskTest, ATaskIsStartedOnce) {
  Task<int> task = give(1);
  task.start();
  EXPECT_DEATH(task.start(), "a task is started once");
  EXPECT_DEATH(Task<int>().start(), "a task is started once");
}

}  // namespace
}  // namespace pmstore::base
