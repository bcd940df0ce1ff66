// What a TailPublisher leaves in its slots while the send queue is full.
#include "log/internal/tail_publisher.h"

#include <gtest/gtest.h>

#include "base/clock.h"

namespace pmstore::log::internal {
namespace {

// A WRITE that departed may read its slot late: until then a slot that somebody tries again and
// again to post must not become that one, or readers would see the tail go back.
TEST(TailPublisher, TriesThatFoundNoRoomTakeNoSlot) {
  base::RealClock clock;
  base::Executor executor(clock);
  auto device = std::move(fabric::open_device(fabric::Scheme::kLocal, executor, nullptr).value());
  auto connection = std::move(executor.run(device->loopback()).value());
  auto publisher =
      std::move(TailPublisher::create(*device, *connection, fabric::RemoteRegion{}, 0).value());
  publisher->reached(64);
  const auto* const departed = publisher->board()->from.data;
  publisher->departed();
  publisher->reached(128);
  const auto* const tried = publisher->board()->from.data;
  EXPECT_NE(tried, departed);
  for (uint64_t tail = 192; tail < 200 * 64; tail += 64) {
    publisher->reached(tail);
    EXPECT_EQ(publisher->board()->from.data, tried);
  }
  publisher->departed();
  EXPECT_TRUE(publisher->all_posted());
}

}  // namespace
}  // namespace pmstore::log::internal
