// What a TailPublisher leaves in its slots while the send queue is full.
#include "log/internal/tail_publisher.h"

#include <gtest/gtest.h>

#include "base/clock.h"
#include "fabric/local/local_device.h"

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
  publisher->set_acknowledged(64);
  const auto* const departed = publisher->board()->from.data;
  publisher->departed();
  publisher->set_acknowledged(128);
  const auto* const tried = publisher->board()->from.data;
  EXPECT_NE(tried, departed);
  for (uint64_t tail = 192; tail < 200 * 64; tail += 64) {
    publisher->set_acknowledged(tail);
    EXPECT_EQ(publisher->board()->from.data, tried);
  }
  publisher->departed();
  EXPECT_TRUE(publisher->all_posted());
}

// The server trims and seals by what it finds there.
TEST(TailPublisher, WhatPublishReturnsForIsInTheServersMemory) {
  for (uint64_t seed = 0; seed < 64; ++seed) {
    base::VirtualClock clock;
    base::Executor executor(clock);
    auto device = *fabric::open_local_device(executor, {.late_effects_seed = seed});
    auto connection = *executor.run(device->loopback());
    uint64_t tail = 0;
    const auto region =
        *device->register_memory(std::as_writable_bytes(std::span(&tail, 1)),
                                 fabric::Access::kRemoteRead | fabric::Access::kRemoteWrite);
    auto publisher = *TailPublisher::create(*device, *connection, region->remote(), 0);
    for (uint64_t published = 64; published < 640; published += 64) {
      publisher->set_acknowledged(published);
      ASSERT_TRUE(executor.run(publisher->publish(1'000'000'000)));
      ASSERT_EQ(tail, published) << "seed " << seed;
    }
    connection.reset();
  }
}

TEST(TailPublisherDeath, ATailThatGoesBackOrDepartsUnaskedIsABug) {
  base::RealClock clock;
  base::Executor executor(clock);
  auto device = std::move(fabric::open_device(fabric::Scheme::kLocal, executor, nullptr).value());
  auto connection = std::move(executor.run(device->loopback()).value());
  auto publisher =
      std::move(TailPublisher::create(*device, *connection, fabric::RemoteRegion{}, 64).value());
  EXPECT_DEATH(publisher->set_acknowledged(56), "stays durable");
  EXPECT_DEATH(publisher->departed(), "not durable");
}

}  // namespace
}  // namespace pmstore::log::internal
