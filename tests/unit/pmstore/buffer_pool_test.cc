#include "pmstore/client/buffer_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace pmstore::internal {
namespace {

class Buffers : public ::testing::Test {
 protected:
  base::VirtualClock clock_;
  Executor executor_{clock_};
  std::unique_ptr<fabric::Device> device_ = *fabric::open_device(fabric::Scheme::kLocal, executor_);
};

TEST_F(Buffers, AreDistinctAlignedAndRegistered) {
  auto pool = *BufferPool::create(*device_, 3);
  std::vector<BufferLease> leases;
  std::set<std::byte*> places;
  for (int i = 0; i < 3; ++i) {
    leases.push_back(pool->try_take());
    ASSERT_TRUE(leases.back());
    places.insert(leases.back()->data);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(leases.back()->data) % 256, 0u);
    const auto memory = leases.back()->region->bytes();
    EXPECT_GE(leases.back()->data, memory.data());
    EXPECT_LE(leases.back()->data + OpBuffer::kBytes, memory.data() + memory.size());
  }
  EXPECT_EQ(places.size(), 3u);
  EXPECT_FALSE(pool->try_take());
  leases.pop_back();
  EXPECT_TRUE(pool->try_take());
}

base::Task<void> use(BufferPool& pool, Executor& executor, std::vector<int>& order, int me) {
  const BufferLease lease = co_await pool.take();
  EXPECT_TRUE(lease);
  order.push_back(me);
  co_await executor.sleep_for(10);
}

TEST_F(Buffers, ThoseWhoWaitGetThemInTurn) {
  auto pool = *BufferPool::create(*device_, 2);
  std::vector<int> order;
  for (int i = 0; i < 6; ++i) executor_.spawn(use(*pool, executor_, order, i));
  executor_.run(
      [](Executor& executor) -> base::Task<void> { co_await executor.sleep_for(1000); }(executor_));
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(pool->free_buffers(), 2u);
}

TEST_F(Buffers, ThoseWhoWaitGetABufferThatWasAbandonedWhenItsRequestEnds) {
  auto pool = *BufferPool::create(*device_, 1);
  BufferLease lease = pool->try_take();
  OpBuffer& buffer = *lease;
  buffer.completion.arm();  // a READ is under way
  std::vector<int> order;
  for (int i = 0; i < 3; ++i) executor_.spawn(use(*pool, executor_, order, i));
  const auto pass = [&](uint64_t ns) {
    executor_.run([](Executor& executor, uint64_t for_ns) -> base::Task<void> {
      co_await executor.sleep_for(for_ns);
    }(executor_, ns));
  };
  pass(1000);
  lease = {};  // the coroutine that read was destroyed
  pass(1000);
  EXPECT_TRUE(order.empty());
  buffer.completion.finish(true);
  pass(1'000'000);
  std::sort(order.begin(), order.end());
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(pool->free_buffers(), 1u);
}

TEST_F(Buffers, WaiterThatIsDestroyedPassesItsTurnOn) {
  auto pool = *BufferPool::create(*device_, 1);
  BufferLease lease = pool->try_take();
  std::vector<int> order;
  base::Task<void> first = use(*pool, executor_, order, 1);
  first.start();
  executor_.spawn(use(*pool, executor_, order, 2));
  executor_.run_once();
  lease = {};  // notifies the first
  first = {};
  executor_.run(
      [](Executor& executor) -> base::Task<void> { co_await executor.sleep_for(1000); }(executor_));
  EXPECT_EQ(order, (std::vector<int>{2}));
}

// One that never suspends takes and gives back all the time.
TEST_F(Buffers, NobodyGetsOneBeforeThoseWhoWait) {
  auto pool = *BufferPool::create(*device_, 2);
  BufferLease first = pool->try_take();
  BufferLease second = pool->try_take();
  std::vector<int> order;
  base::Task<void> waits = use(*pool, executor_, order, 1);
  waits.start();
  first = {};  // notifies it
  EXPECT_FALSE(pool->try_take());
  second = {};
  EXPECT_TRUE(pool->try_take());
  executor_.run_once();
  EXPECT_EQ(order, (std::vector<int>{1}));
  EXPECT_TRUE(pool->try_take());
}

TEST_F(Buffers, WaiterThatLooksForAnAbandonedOneIsReplacedWhenItIsDestroyed) {
  auto pool = *BufferPool::create(*device_, 1);
  BufferLease lease = pool->try_take();
  OpBuffer& buffer = *lease;
  buffer.completion.arm();  // a READ is under way
  std::vector<int> order;
  base::Task<void> first = use(*pool, executor_, order, 1);
  first.start();
  executor_.spawn(use(*pool, executor_, order, 2));
  const auto pass = [&](uint64_t ns) {
    executor_.run([](Executor& executor, uint64_t for_ns) -> base::Task<void> {
      co_await executor.sleep_for(for_ns);
    }(executor_, ns));
  };
  pass(1000);
  lease = {};  // abandoned: the first waiter is notified, and looks again and again
  pass(1000);
  first = {};
  buffer.completion.finish(true);
  pass(1'000'000'000);
  EXPECT_EQ(order, (std::vector<int>{2}));
}

// Neither an abandoned one whose request has ended meanwhile.
TEST_F(Buffers, NobodyGetsAnAbandonedOneBeforeThoseWhoWait) {
  auto pool = *BufferPool::create(*device_, 1);
  BufferLease lease = pool->try_take();
  OpBuffer& buffer = *lease;
  buffer.completion.arm();  // a READ is under way
  std::vector<int> order;
  for (int i = 0; i < 2; ++i) executor_.spawn(use(*pool, executor_, order, i));
  const auto pass = [&](uint64_t ns) {
    executor_.run([](Executor& executor, uint64_t for_ns) -> base::Task<void> {
      co_await executor.sleep_for(for_ns);
    }(executor_, ns));
  };
  pass(1000);
  lease = {};  // abandoned: the first waiter looks again and again
  pass(1000);
  buffer.completion.finish(true);
  EXPECT_FALSE(pool->try_take());
  pass(1'000'000);
  std::sort(order.begin(), order.end());
  EXPECT_EQ(order, (std::vector<int>{0, 1}));
}

TEST_F(Buffers, MovedLeaseIsGivenBackOnce) {
  auto pool = *BufferPool::create(*device_, 1);
  BufferLease first = pool->try_take();
  BufferLease second = std::move(first);
  EXPECT_FALSE(first);
  EXPECT_TRUE(second);
  first = {};
  EXPECT_EQ(pool->free_buffers(), 0u);
  second = {};
  EXPECT_EQ(pool->free_buffers(), 1u);
}

}  // namespace
}  // namespace pmstore::internal
