// Ranges that owners lock in files, without a server.
#include "fs/internal/file_locks.h"

#include <vector>

#include "base/random.h"
#include "tests/unit/fs/service/files_world.h"
#include "tests/unit/fs/service/lock_of.h"

namespace pmstore::fs {
namespace {

using namespace locks;

class FileLocksTest : public testing::Test {
 protected:
  static constexpr Ino kFile{7};
  static constexpr OpenOwner kClient{1};

  bool take(const FileLock& lock) {
    return !locks_.in_the_way(kClient, kFile, lock) && locks_.set(kClient, kFile, lock);
  }
  std::string held() const {
    std::string text;
    for (const auto& each : locks_.held_by(kClient)) {
      text += std::to_string(each.lock.owner) + (each.lock.type == kRead ? "r" : "w") +
              std::to_string(each.lock.start) + "-" + std::to_string(each.lock.end) + " ";
    }
    return text;
  }

  base::VirtualClock clock_;
  base::Executor executor_{clock_};
  internal::FileLocks locks_{executor_};
};

TEST_F(FileLocksTest, OwnRangesAreReplacedSplitAndJoined) {
  EXPECT_TRUE(take(range(kWrite, 0, 99)));
  EXPECT_TRUE(take(range(kRead, 40, 59)));
  EXPECT_EQ(locks_.size(), 3u);
  EXPECT_TRUE(take(range(kWrite, 40, 59)));
  EXPECT_EQ(held(), "1w0-99 ");
  EXPECT_TRUE(take(range(kUnlock, 10, 19)));
  EXPECT_EQ(locks_.size(), 2u);
  EXPECT_FALSE(take(range(kRead, 0, 10, 2)));
  EXPECT_TRUE(take(range(kRead, 10, 19, 2)));
  EXPECT_FALSE(take(range(kRead, 10, 20, 2)));
  EXPECT_TRUE(take(range(kUnlock, 0, UINT64_MAX)));
  EXPECT_EQ(held(), "2r10-19 ");
  EXPECT_TRUE(take(range(kRead, 0, UINT64_MAX)));
  EXPECT_FALSE(take(range(kWrite, 19, 19)));
  EXPECT_TRUE(take(range(kWrite, 20, 20)));
  locks_.drop(kClient);
  EXPECT_EQ(locks_.size(), 0u);
}

TEST_F(FileLocksTest, ReadersShareAndKindsDoNotMeet) {
  EXPECT_TRUE(take(range(kRead, 0, 9, 1)));
  EXPECT_TRUE(take(range(kRead, 5, 20, 2)));
  EXPECT_FALSE(take(range(kWrite, 5, 5, 1)));
  FileLock all = flock_of(kWrite);
  all.owner = 3;
  EXPECT_TRUE(take(all));
  const auto found = locks_.in_the_way(kClient, kFile, range(kWrite, 15, 30, 1));
  ASSERT_TRUE(found);
  EXPECT_EQ(*found, range(kRead, 5, 20, 2));
}

TEST_F(FileLocksTest, ADeadlockOfThreeIsSeen) {
  constexpr uint64_t kLongNs = 1'000'000'000'000;
  const auto lock = [this](uint64_t start, uint64_t owner) {
    return locks_.wait(kClient, kFile, range(kWrite, start, start, owner), kLongNs);
  };
  for (uint64_t owner = 1; owner <= 4; ++owner)
    EXPECT_TRUE(take(range(kWrite, owner, owner, owner)));
  auto one = lock(2, 1);
  auto two = lock(3, 2);
  auto three = lock(4, 3);
  for (auto* waits : {&one, &two, &three}) waits->start();
  EXPECT_EQ(executor_.run(lock(1, 4)), internal::FileLocks::Outcome::kDeadlock);
  EXPECT_TRUE(take(range(kUnlock, 4, 4, 4)));
  executor_.run([](base::Executor& executor) -> base::Task<void> {
    co_await executor.sleep_for(1000);
  }(executor_));
  EXPECT_TRUE(three.done() && !two.done());
}

// A chain of waits is gone through when each of them begins, and not at each tick.
TEST_F(FileLocksTest, AWaitThatGoesOnLooksForADeadlockOnce) {
  constexpr uint64_t kWaits = 300;
  std::vector<base::Task<internal::FileLocks::Outcome>> waits;
  for (uint64_t owner = 0; owner <= kWaits; ++owner) {
    EXPECT_TRUE(take(range(kWrite, owner, owner, owner)));
  }
  for (uint64_t owner = 0; owner < kWaits; ++owner) {
    const FileLock next = range(kWrite, owner + 1, owner + 1, owner);
    waits.push_back(locks_.wait(kClient, kFile, next, 1'000'000'000'000));
    waits.back().start();
  }
  const uint64_t before = locks_.steps();
  executor_.run([](base::Executor& executor) -> base::Task<void> {
    co_await executor.sleep_for(1'000'000'000);
  }(executor_));
  constexpr uint64_t kTicks = 10;
  constexpr uint64_t kMostSteps = 200;
  EXPECT_LE(locks_.steps() - before, kTicks * kWaits * kMostSteps);
}

TEST_F(FileLocksTest, AWaitHasAnEnd) {
  EXPECT_TRUE(take(range(kWrite, 0, 9, 1)));
  auto waits = locks_.wait(kClient, kFile, range(kRead, 5, 5, 2), 500'000'000);
  waits.start();
  executor_.run([](base::Executor& executor) -> base::Task<void> {
    co_await executor.sleep_for(1'000'000'000);
  }(executor_));
  ASSERT_TRUE(waits.done());
  EXPECT_EQ(waits.take(), internal::FileLocks::Outcome::kBusy);
  EXPECT_EQ(held(), "1w0-9 ");
}

TEST_F(FileLocksTest, LocksOfAClientHaveABound) {
  const FileLock all = range(kWrite, 0, UINT64_MAX);
  uint64_t held = 0;
  while (held < 100'000 && locks_.set(kClient, Ino{100 + held}, all)) ++held;
  EXPECT_LE(held, internal::FileLocks::kMaxLocks);
  EXPECT_GE(held, internal::FileLocks::kMaxLocks - 2);
  EXPECT_TRUE(locks_.set(OpenOwner{2}, kFile, all));
  EXPECT_TRUE(locks_.set(kClient, Ino{100}, range(kUnlock, 0, UINT64_MAX)));
  EXPECT_TRUE(locks_.set(kClient, Ino{100}, all));
}

// Whole-file read locks of many owners among many small write locks of one: what the sorted lists
// of each kind would go through.
TEST_F(FileLocksTest, AskingForALockLooksAtTheLogarithmOfAllLocks) {
  constexpr uint64_t kCount = 4096;
  constexpr uint64_t kMostSteps = 200;  // some times the logarithm
  const auto costs = [this](auto action) {
    const uint64_t before = locks_.steps();
    action();
    return locks_.steps() - before;
  };
  for (uint64_t i = 0; i < kCount; ++i) {
    EXPECT_LE(costs([&] { EXPECT_TRUE(take(range(kWrite, 10 * i, 10 * i + 4, 1))); }), kMostSteps);
    EXPECT_LE(costs([&] { EXPECT_TRUE(take(range(kRead, 50'000, 60'000, 2 + i))); }), kMostSteps);
  }
  // Another holder's only: its own 4,096 are not looked at.
  const FileLock all = range(kWrite, 0, 49'999, 1);
  EXPECT_LE(costs([&] { EXPECT_FALSE(locks_.in_the_way(kClient, kFile, all)); }), kMostSteps);
  const FileLock more = range(kWrite, 0, 50'000, 1);
  EXPECT_LE(costs([&] { EXPECT_TRUE(locks_.in_the_way(kClient, kFile, more)); }), kMostSteps);
  const FileLock reads = range(kRead, 50'000, UINT64_MAX, 1);
  EXPECT_LE(costs([&] { EXPECT_FALSE(locks_.in_the_way(kClient, kFile, reads)); }), kMostSteps);
  const FileLock between = range(kWrite, 49'995, 49'999, 7);
  EXPECT_LE(costs([&] { EXPECT_TRUE(take(between)); }), kMostSteps);
}

TEST_F(FileLocksTest, TheLocksOfAClientGoWithoutALookAtThoseOfOthers) {
  constexpr uint64_t kCount = 4096;
  constexpr OpenOwner kOther{2};
  for (uint64_t i = 0; i < kCount; ++i) {
    EXPECT_TRUE(locks_.set(kOther, Ino{100 + i}, range(kWrite, 0, 9)));
    EXPECT_TRUE(locks_.set(kOther, kFile, range(kRead, 0, 9, i)));
  }
  EXPECT_TRUE(take(range(kRead, 5, 20)));
  const uint64_t before = locks_.steps();
  EXPECT_EQ(held(), "1r5-20 ");
  locks_.drop(kClient);
  EXPECT_LE(locks_.steps() - before, 200u);
  EXPECT_EQ(locks_.size(), 2 * kCount);
  EXPECT_EQ(held(), "");
}

// Against a list of all locks, looked through from its beginning.
TEST_F(FileLocksTest, RandomLocksAreThoseOfAPlainList) {
  struct Plain {
    uint64_t owner;
    LockType type;
  };
  constexpr uint64_t kBytes = 48;
  base::Random random(11);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::vector<Plain>> bytes(kBytes);
    for (int i = 0; i < 400; ++i) {
      const uint64_t start = random.below(kBytes);
      const uint64_t end = start + random.below(kBytes - start);
      const FileLock lock =
          range(LockType{static_cast<uint8_t>(random.below(3))}, start, end, 1 + random.below(5));
      bool free = true;
      for (uint64_t at = start; at <= end; ++at) {
        for (const Plain& each : bytes[at]) {
          free &= lock.type == kUnlock || each.owner == lock.owner ||
                  (lock.type == kRead && each.type == kRead);
        }
      }
      ASSERT_EQ(take(lock), free) << round << " " << i;
      if (!free) continue;
      for (uint64_t at = start; at <= end; ++at) {
        std::erase_if(bytes[at], [&](const Plain& each) { return each.owner == lock.owner; });
        if (lock.type != kUnlock) bytes[at].push_back({lock.owner, lock.type});
      }
    }
    locks_.drop(kClient);
    ASSERT_EQ(locks_.size(), 0u);
  }
}

TEST_F(FileLocksTest, AWaitEndsWhenItsFileIsUnlockedAndTakesNothing) {
  EXPECT_TRUE(take(range(kWrite, 0, 9, 1)));
  EXPECT_TRUE(locks_.set(kClient, Ino{8}, range(kWrite, 0, 9, 1)));
  auto waits = locks_.wait(kClient, kFile, range(kRead, 5, 5, 2), 50'000'000);
  waits.start();
  EXPECT_TRUE(locks_.set(kClient, Ino{8}, range(kUnlock, 0, 9, 1)));
  for (int i = 0; i < 10; ++i) executor_.run_once();
  EXPECT_FALSE(waits.done());
  EXPECT_TRUE(take(range(kUnlock, 0, 9, 1)));
  for (int i = 0; i < 10; ++i) executor_.run_once();
  ASSERT_TRUE(waits.done());
  EXPECT_EQ(waits.take(), internal::FileLocks::Outcome::kDone);
  EXPECT_EQ(held(), "");
}

TEST_F(FileLocksTest, AWaitThatIsDestroyedIsNoneOfADeadlock) {
  constexpr uint64_t kLongNs = 1'000'000'000'000;
  EXPECT_TRUE(take(range(kWrite, 1, 1, 1)));
  EXPECT_TRUE(take(range(kWrite, 2, 2, 2)));
  {
    auto waits = locks_.wait(kClient, kFile, range(kWrite, 2, 2, 1), kLongNs);
    waits.start();
  }
  auto other = locks_.wait(kClient, kFile, range(kWrite, 1, 1, 2), kLongNs);
  other.start();
  EXPECT_FALSE(other.done()) << "no holder waits for it any more";
  EXPECT_TRUE(take(range(kUnlock, 1, 1, 1)));
  for (int i = 0; i < 10; ++i) executor_.run_once();
  ASSERT_TRUE(other.done());
  EXPECT_EQ(other.take(), internal::FileLocks::Outcome::kDone);
}

TEST_F(FileLocksTest, AWaitThatHasEndedIsNoneOfADeadlock) {
  constexpr uint64_t kLongNs = 1'000'000'000'000;
  EXPECT_TRUE(take(range(kWrite, 1, 1, 1)));
  EXPECT_TRUE(take(range(kWrite, 2, 2, 2)));
  auto waits = locks_.wait(kClient, kFile, range(kWrite, 2, 2, 1), kLongNs);
  waits.start();
  EXPECT_TRUE(take(range(kUnlock, 2, 2, 2)));
  for (int i = 0; i < 10; ++i) executor_.run_once();
  ASSERT_TRUE(waits.done());
  EXPECT_EQ(waits.take(), internal::FileLocks::Outcome::kDone);
  EXPECT_TRUE(take(range(kWrite, 2, 2, 2)));  // it was faster
  auto other = locks_.wait(kClient, kFile, range(kWrite, 1, 1, 2), kLongNs);
  other.start();
  EXPECT_FALSE(other.done()) << "no holder waits for it any more";
  EXPECT_TRUE(take(range(kUnlock, 1, 1, 1)));
  for (int i = 0; i < 10; ++i) executor_.run_once();
  ASSERT_TRUE(other.done());
  EXPECT_EQ(other.take(), internal::FileLocks::Outcome::kDone);
}

}  // namespace
}  // namespace pmstore::fs
