// Blocking and waking: descriptors, timeouts, other threads, signals.
#include "base/sleeper.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/clock.h"
#include "tests/harness/patience.h"

namespace pmstore::base {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

struct Noted final : Watched {
  void on_ready(uint32_t e) override {
    events = e;
    ++times;
  }
  uint32_t events = 0;
  int times = 0;
};

class SleeperTest : public ::testing::Test {
 protected:
  SleeperTest() : event_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

  void signal_event() {
    const uint64_t one = 1;
    ASSERT_EQ(write(event_.get(), &one, sizeof one), ssize_t{sizeof one});
  }

  RealClock clock_;
  Sleeper sleeper_ = std::move(*Sleeper::open());
  FileDescriptor event_;
  Noted noted_;
};

TEST_F(SleeperTest, TellsOfAReadyDescriptorAsLongAsItIsReady) {
  ASSERT_TRUE(sleeper_.watch(event_.get(), EPOLLIN, noted_));
  EXPECT_EQ(sleeper_.watched(), 1u);
  sleeper_.look();
  EXPECT_EQ(noted_.times, 0);
  signal_event();
  sleeper_.wait(0, Sleeper::kForever);
  sleeper_.look();
  EXPECT_EQ(noted_.times, 2);
  EXPECT_EQ(noted_.events, uint32_t{EPOLLIN});
  sleeper_.change(event_.get(), 0, noted_);
  sleeper_.look();
  EXPECT_EQ(noted_.times, 2);
  sleeper_.change(event_.get(), EPOLLIN | EPOLLOUT, noted_);
  sleeper_.look();
  EXPECT_EQ(noted_.events, uint32_t{EPOLLIN | EPOLLOUT});
  sleeper_.unwatch(event_.get());
  EXPECT_EQ(sleeper_.watched(), 0u);
  sleeper_.look();
  EXPECT_EQ(noted_.times, 3);
}

TEST_F(SleeperTest, BlocksUntilTheTimeoutAndNotMuchLess) {
  const uint64_t before_ns = clock_.now_ns();
  sleeper_.wait(before_ns, before_ns + 3'000'000);
  EXPECT_GE(clock_.now_ns() - before_ns, 3'000'000u);
}

TEST_F(SleeperTest, BlocksUntilATimeThatIsNear) {
  const uint64_t before_ns = clock_.now_ns();
  sleeper_.wait(before_ns, before_ns + 50'000);
  EXPECT_GE(clock_.now_ns() - before_ns, 50'000u);
}

TEST_F(SleeperTest, AnEarlierBoundCountsAlthoughTheTimerIsSetToALaterOne) {
  const uint64_t too_long_ns = harness::patience_ns();
  uint64_t now_ns = clock_.now_ns();
  signal_event();
  ASSERT_TRUE(sleeper_.watch(event_.get(), EPOLLIN, noted_));
  sleeper_.wait(now_ns, now_ns + too_long_ns + kSecond);  // ends at once, and leaves the timer set
  sleeper_.unwatch(event_.get());
  now_ns = clock_.now_ns();
  sleeper_.wait(now_ns, now_ns + 1'000'000);
  EXPECT_GE(clock_.now_ns() - now_ns, 1'000'000u);
  EXPECT_LT(clock_.now_ns() - now_ns, too_long_ns);
}

TEST_F(SleeperTest, ATimerLeftFromAnEarlierWaitMayEndAWaitOnceOnly) {
  uint64_t now_ns = clock_.now_ns();
  signal_event();
  ASSERT_TRUE(sleeper_.watch(event_.get(), EPOLLIN, noted_));
  sleeper_.wait(now_ns, now_ns + 1'000'000);
  sleeper_.unwatch(event_.get());
  now_ns = clock_.now_ns();
  const uint64_t due_ns = now_ns + 20'000'000;
  int waits = 0;
  for (; clock_.now_ns() < due_ns; ++waits) sleeper_.wait(clock_.now_ns(), due_ns);
  EXPECT_LE(waits, 4);
}

TEST_F(SleeperTest, WakeEndsAnAnnouncedWaitAlsoBeforeItBegins) {
  sleeper_.flag().announce();
  sleeper_.wake();
  sleeper_.wait(0, Sleeper::kForever);
  sleeper_.flag().clear();
}

TEST_F(SleeperTest, ARingEndsOneWaitOnly) {
  sleeper_.flag().announce();
  sleeper_.wake();
  sleeper_.wait(0, Sleeper::kForever);
  sleeper_.flag().clear();
  const uint64_t before_ns = clock_.now_ns();
  sleeper_.wait(before_ns, before_ns + 3'000'000);
  EXPECT_GE(clock_.now_ns() - before_ns, 3'000'000u) << "the bell is heard again";
}

TEST_F(SleeperTest, WakeOfAnAwakeThreadMakesNoSystemCall) {
  sleeper_.wake();  // nothing is announced
  const uint64_t before_ns = clock_.now_ns();
  sleeper_.wait(before_ns, before_ns + 1'000'000);  // so the bell has not been rung
  EXPECT_GE(clock_.now_ns() - before_ns, 1'000'000u);
}

TEST_F(SleeperTest, AnUnknownDescriptorIsAnError) {
  EXPECT_EQ(sleeper_.watch(-1, EPOLLIN, noted_).code(), ErrorCode::kIo);
  EXPECT_EQ(sleeper_.watched(), 0u);
}

Sleeper* signaled = nullptr;

TEST_F(SleeperTest, ASignalHandlerMayWake) {
  signaled = &sleeper_;
  struct sigaction action = {}, before = {};
  action.sa_handler = [](int) { signaled->wake(); };
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
  sleeper_.flag().announce();
  raise(SIGUSR1);
  sleeper_.wait(0, Sleeper::kForever);
  sleeper_.flag().clear();
  sigaction(SIGUSR1, &before, nullptr);
}

// Two threads hand a ball to each other and block whenever they do not have it. A lost wake-up
// would stop the game; the bound only ends a failed test.
TEST_F(SleeperTest, NoWakeUpIsLostBetweenTwoThreads) {
  constexpr uint32_t kThrows = 20'000;
  const uint64_t too_long_ns = harness::patience_ns();
  Sleeper other = std::move(*Sleeper::open());
  std::atomic<uint32_t> ball{0};
  std::atomic<bool> lost{false};
  const auto play = [&](Sleeper& mine, Sleeper& theirs, uint32_t parity) {
    const RealClock clock;
    while (!lost) {
      const uint32_t at = ball.load(std::memory_order_acquire);
      if (at >= kThrows) return;
      if (at % 2 == parity) {
        for (uint32_t pause = at * 7919 % 64; pause > 0; --pause)
          std::atomic_signal_fence(std::memory_order_seq_cst);
        ball.store(at + 1, std::memory_order_release);
        theirs.wake();
        continue;
      }
      mine.flag().announce();
      if (ball.load(std::memory_order_acquire) == at) {
        const uint64_t before_ns = clock.now_ns();
        mine.wait(before_ns, before_ns + too_long_ns);
        if (clock.now_ns() - before_ns >= too_long_ns) lost = true;
      }
      mine.flag().clear();
    }
  };
  std::thread peer([&] { play(other, sleeper_, 1); });
  play(sleeper_, other, 0);
  peer.join();
  EXPECT_FALSE(lost);
  EXPECT_EQ(ball, kThrows);
}

}  // namespace
}  // namespace pmstore::base
