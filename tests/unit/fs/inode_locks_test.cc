// InodeLocks: who comes first, and who is gone while they wait.
#include "fs/internal/inode_locks.h"

#include <gtest/gtest.h>

#include <string>

#include "base/clock.h"
#include "base/task.h"

namespace pmstore::fs::internal {
namespace {

class InodeLocksTest : public ::testing::Test {
 protected:
  static constexpr Ino kIno{7};
  using Mode = InodeLocks::Mode;

  // Takes the lock, notes its letter, and keeps it until it is destroyed.
  base::Task<void> hold(Mode mode, char letter) {
    InodeLocks::Guard guard;
    if (mode == Mode::kShared) {
      guard = co_await locks_.shared(kIno);
    } else {
      guard = co_await locks_.exclusive(kIno);
    }
    order_ += letter;
    co_await executor_.sleep_for(1'000'000'000'000);
  }
  base::Task<void> start(Mode mode, char letter) {
    base::Task<void> task = hold(mode, letter);
    task.start();
    return task;
  }
  void settle() {
    while (executor_.run_once()) {
    }
  }

  base::VirtualClock clock_;
  base::Executor executor_{clock_};
  InodeLocks locks_{executor_};
  std::string order_;
};

TEST_F(InodeLocksTest, ManyShareAndOneExcludes) {
  auto a = start(Mode::kShared, 'a');
  auto b = start(Mode::kShared, 'b');
  auto c = start(Mode::kExclusive, 'C');
  settle();
  EXPECT_EQ(order_, "ab");
  a = {};
  settle();
  EXPECT_EQ(order_, "ab");
  b = {};
  settle();
  EXPECT_EQ(order_, "abC");
  auto d = start(Mode::kShared, 'd');
  auto e = start(Mode::kShared, 'e');
  auto f = start(Mode::kExclusive, 'F');
  settle();
  EXPECT_EQ(order_, "abC");
  c = {};
  settle();
  EXPECT_EQ(order_, "abCde");
}

TEST_F(InodeLocksTest, WhoComesLaterDoesNotPassThoseWhoWait) {
  auto a = start(Mode::kShared, 'a');
  auto b = start(Mode::kExclusive, 'B');
  auto c = start(Mode::kShared, 'c');
  settle();
  EXPECT_EQ(order_, "a");
  a = {};
  settle();
  EXPECT_EQ(order_, "aB");
  b = {};
  settle();
  EXPECT_EQ(order_, "aBc");
}

TEST_F(InodeLocksTest, WhoIsGoneHoldsNobodyUp) {
  auto a = start(Mode::kShared, 'a');
  auto b = start(Mode::kExclusive, 'B');
  auto c = start(Mode::kShared, 'c');
  b = {};  // while it waits
  settle();
  EXPECT_EQ(order_, "ac");
  auto d = start(Mode::kExclusive, 'D');
  auto e = start(Mode::kExclusive, 'E');
  a = {};
  c = {};
  d = {};  // it was let in, and has not run yet
  settle();
  EXPECT_EQ(order_, "acE");
}

TEST_F(InodeLocksTest, AGuardGivesUpOnce) {
  const auto move = [this]() -> base::Task<bool> {
    InodeLocks::Guard first = co_await locks_.exclusive(kIno);
    InodeLocks::Guard second = std::move(first);
    InodeLocks::Guard other = co_await locks_.exclusive(Ino{8});
    second.release();
    other = co_await locks_.exclusive(kIno);
    const auto again = co_await locks_.exclusive(Ino{8});
    co_return !first.holds() && !second.holds() && other.holds() && again.holds();
  };
  EXPECT_TRUE(executor_.run(move()));
}

}  // namespace
}  // namespace pmstore::fs::internal
