#include "pmstore/client/redo_ring.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fabric/local/fault_injection.h"

namespace pmstore::internal {
namespace {

constexpr uint64_t kDataBytes = 16 * 1024;

// A ring in memory of the same device, reached through a connection to itself.
class RedoRingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    connection_ = *executor_.run(device_->loopback());
    begin_session(0);
  }
  // Its tail is there, and its start at 0.
  void begin_session(uint64_t tail_lsn) {
    granted_.tail_lsn = tail_lsn;
    granted_.ring = region_->remote();
    granted_.incarnation = 1;
    auto ring = RedoRing::create(*device_, *connection_, *rpc_, granted_, server_,
                                 persist::WriteStrategy::kDoorbell, {});
    ASSERT_TRUE(ring) << ring.error().to_string();
    ring_ = std::move(*ring);
  }
  Result<RedoRing::Appended> append(size_t bytes = 100) {
    const std::vector<std::byte> payload(bytes, std::byte{7});
    return executor_.run(ring_->append(++sequence_, payload));
  }

  base::VirtualClock clock_;
  Executor executor_{clock_};
  std::unique_ptr<fabric::Device> device_ = *fabric::open_device(fabric::Scheme::kLocal, executor_);
  alignas(256) std::byte memory_[kDataBytes] = {};
  std::unique_ptr<fabric::MemoryRegion> region_ = *device_->register_memory(
      memory_, fabric::Access::kRemoteRead | fabric::Access::kRemoteWrite);
  std::unique_ptr<fabric::RpcClient> rpc_ = *fabric::RpcClient::create(*device_, {});
  std::unique_ptr<fabric::Connection> connection_;
  RingReply granted_;
  persist::PersistCapability server_{persist::Domain::kCpuCache, persist::WriteLanding::kCpu};
  std::unique_ptr<RedoRing> ring_;
  uint64_t sequence_ = 0;
};

TEST_F(RedoRingTest, OnlyTheOldestAcknowledgedOnesMayGo) {
  const auto a = *append();
  const auto b = *append();
  const auto c = *append();
  EXPECT_EQ(ring_->done_through_lsn(), a.lsn);
  ring_->done(a.ticket);
  ring_->done(c.ticket);
  EXPECT_EQ(ring_->done_through_lsn(), b.lsn) << "b's writes are not in place yet";
  ring_->done(b.ticket);
  EXPECT_EQ(ring_->done_through_lsn(), ring_->logged_tail_lsn());
  ASSERT_TRUE(ring_->truncated(c.lsn));
  EXPECT_EQ(ring_->start_lsn(), c.lsn);
  EXPECT_EQ(ring_->done_through_lsn(), ring_->logged_tail_lsn());
}

TEST_F(RedoRingTest, FullRingTakesMoreAfterTruncation) {
  std::vector<RedoRing::Ticket> tickets;
  Result<RedoRing::Appended> last = append(1000);
  for (; last; last = append(1000)) tickets.push_back(last->ticket);
  EXPECT_EQ(last.code(), ErrorCode::kBackPressure);
  EXPECT_GT(tickets.size(), 10u);
  EXPECT_TRUE(ring_->more_than_half_used());
  for (const auto ticket : tickets) ring_->done(ticket);
  EXPECT_EQ(ring_->done_through_lsn(), ring_->logged_tail_lsn())
      << "the one that was refused does not count";
  ASSERT_TRUE(ring_->truncated(ring_->done_through_lsn()));
  EXPECT_FALSE(ring_->more_than_half_used());
  EXPECT_TRUE(append(1000));
}

// Else a client whose earlier sessions have filled the ring could never commit again.
TEST_F(RedoRingTest, WhatEarlierSessionsLeftMayGoBeforeAnythingOfThisOneIsDone) {
  const uint64_t tail = kDataBytes - 512;
  begin_session(tail);
  EXPECT_EQ(append(1000).code(), ErrorCode::kBackPressure);
  EXPECT_EQ(ring_->done_through_lsn(), tail);
  const auto small = append(100);
  ASSERT_TRUE(small);
  EXPECT_EQ(ring_->done_through_lsn(), tail) << "its own is not in place yet";
  ASSERT_TRUE(ring_->truncated(tail));
  EXPECT_TRUE(append(1000));
}

TEST_F(RedoRingTest, UnacknowledgedCommitsAreBounded) {
  // Entries of the smallest size fill the table of commits before they fill the ring.
  std::vector<RedoRing::Ticket> tickets;
  Result<RedoRing::Appended> last = append(8);
  for (; last && tickets.size() < 1000; last = append(8)) tickets.push_back(last->ticket);
  ASSERT_FALSE(last);
  EXPECT_EQ(last.code(), ErrorCode::kBackPressure);
  EXPECT_EQ(tickets.size(), kDataBytes / 128);
  for (const auto ticket : tickets) ring_->done(ticket);
  ASSERT_TRUE(ring_->truncated(ring_->done_through_lsn()));
  EXPECT_TRUE(append(8));
}

TEST_F(RedoRingTest, WhatCanNeverFitIsTooLarge) {
  EXPECT_TRUE(append(ring_->max_payload_bytes()));
  EXPECT_EQ(append(ring_->max_payload_bytes() + 1).code(), ErrorCode::kTooLarge);
}

TEST_F(RedoRingTest, NothingFromADoubtfulEntryOnIsTruncated) {
  const auto a = *append();
  ring_->done(a.ticket);
  const uint64_t tail = ring_->logged_tail_lsn();
  fabric::FailNthRequest fault(1, fabric::FaultSide::kBoth, {fabric::Fault::kBreakAfter, 0});
  {
    const fabric::ScopedFaultInjector installed(fault);
    const auto doubtful = append();
    ASSERT_FALSE(doubtful);
    EXPECT_NE(doubtful.code(), ErrorCode::kBackPressure);
  }
  EXPECT_TRUE(fault.fired());
  EXPECT_EQ(ring_->logged_tail_lsn(), tail);
  EXPECT_EQ(ring_->done_through_lsn(), tail);
}

TEST_F(RedoRingTest, AbsurdTruncationIsRefused) {
  const auto a = *append();
  const auto b = *append();
  ring_->done(a.ticket);
  EXPECT_EQ(ring_->truncated(b.lsn + 1'000'000).code(), ErrorCode::kInvalidArgument);
  ASSERT_TRUE(ring_->truncated(b.lsn));
  EXPECT_EQ(ring_->truncated(a.lsn).code(), ErrorCode::kInvalidArgument);
}

TEST_F(RedoRingTest, StrategyThatWouldNotBeDurableIsUnsupported) {
  server_.domain = persist::Domain::kMemoryController;
  const auto ring = RedoRing::create(*device_, *connection_, *rpc_, granted_, server_,
                                     persist::WriteStrategy::kDoorbell, {});
  ASSERT_FALSE(ring);
  EXPECT_EQ(ring.code(), ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace pmstore::internal
