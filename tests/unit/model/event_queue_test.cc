#include "model/event_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/random.h"

namespace pmstore::model {
namespace {

class ModelEventQueue : public ::testing::Test {
 public:  // events call members
  void note(char letter) { trace_ += letter; }
  void note_time(uint32_t) { times_.push_back(events_.now_ps()); }
  void chain(uint32_t left) {
    note_time(left);
    if (left > 0) events_.at<&ModelEventQueue::chain>(events_.now_ps() + 700, this, left - 1);
  }
  void wake(base::WaitList* list) {
    list->notify_all();
    events_.interrupt();
  }
  void set(uint64_t time_ps, char letter) {
    events_.at<&ModelEventQueue::note>(time_ps, this, letter);
  }
  void sleep_until(uint64_t time_ns) {
    auto run = [this, time_ns]() -> base::Task<void> { co_await executor_.sleep_until(time_ns); };
    executor_.run(run());
  }

  base::VirtualClock clock_;
  base::Executor executor_{clock_};
  EventQueue events_{executor_};
  std::string trace_;
  std::vector<uint64_t> times_;
};

TEST_F(ModelEventQueue, EventsComeInTimeOrderAndEqualTimesInTheOrderSet) {
  set(3000, 'd');
  set(1000, 'a');
  set(1001, 'b');
  set(1001, 'c');
  sleep_until(10);
  EXPECT_EQ(trace_, "abcd");
}

TEST_F(ModelEventQueue, AThousandEventsInRandomOrderComeSorted) {
  base::Random random(7);
  for (int i = 0; i < 1000; ++i) {
    events_.at<&ModelEventQueue::note_time>(random.below(500'000), this, 0u);
  }
  sleep_until(1000);
  ASSERT_EQ(times_.size(), 1000u);
  EXPECT_TRUE(std::is_sorted(times_.begin(), times_.end()));
}

TEST_F(ModelEventQueue, TheClockFollowsRoundedDown) {
  events_.at<&ModelEventQueue::chain>(500, this, 3u);
  sleep_until(2);
  EXPECT_EQ(times_, (std::vector<uint64_t>{500, 1200, 1900, 2600}));
  EXPECT_EQ(clock_.now_ns(), 2u);
  EXPECT_EQ(events_.now_ps(), 2600u);
}

TEST_F(ModelEventQueue, TimersFireBetweenEvents) {
  set(5000, 'a');
  set(15'000, 'c');
  auto timer = [this]() -> base::Task<void> {
    co_await executor_.sleep_until(10);
    trace_ += 'b';
  };
  executor_.spawn(timer());
  sleep_until(20);
  EXPECT_EQ(trace_, "abc");
}

TEST_F(ModelEventQueue, WhoIsWokenRunsAtTheTimeOfItsEvent) {
  base::WaitList list(executor_);
  events_.at<&ModelEventQueue::wake>(7000, this, &list);
  set(7500, 'a');
  set(8000, 'b');
  auto waiter = [&]() -> base::Task<uint64_t> {
    co_await list.wait();
    co_return executor_.now_ns();
  };
  EXPECT_EQ(executor_.run(waiter()), 7u);
}

TEST_F(ModelEventQueue, SettingAnEventInThePastCallsItNow) {
  sleep_until(100);
  set(1000, 'a');
  sleep_until(101);
  EXPECT_EQ(trace_, "a");
}

TEST(ModelEventQueueDeathTest, RealTimeIsRefused) {
  base::RealClock clock;
  base::Executor executor(clock);
  EXPECT_DEATH(EventQueue{executor}, "virtual time");
}

}  // namespace
}  // namespace pmstore::model
