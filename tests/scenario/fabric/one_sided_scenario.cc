// One-sided operations: data, ordering where declared, atomics, and what they cost in doorbells.
#include "base/checksum.h"
#include "tests/scenario/fabric/fabric_scenario.h"

namespace pmstore::scenario {
namespace {

using fabric::AtomicScope;
using fabric::Batch;
using fabric::Completion;
using fabric::Counters;

class OneSidedScenario : public FabricScenario {
 protected:
  void SetUp() override {
    FabricScenario::SetUp();
    if (HasFatalFailure()) return;
    link_ = connect_raw();
    ASSERT_NE(link_, nullptr);
  }
  void TearDown() override {
    link_.reset();
    FabricScenario::TearDown();
  }
  fabric::Connection& connection() { return *link_->connection; }
  const fabric::RemoteRegion& shared() const { return link_->hello.shared; }
  std::unique_ptr<RawLink> link_;
};

TEST_F(OneSidedScenario, WritesAndReadsOfEverySizeAndAlignmentKeepEveryByte) {
  constexpr size_t kBack = 2u << 20;  // where READs go
  uint64_t seed = 1;
  for (const size_t bytes : {1, 2, 7, 8, 63, 64, 65, 255, 256, 4095, 4096, 65537, 1 << 20}) {
    for (const auto& [from, to] : {std::pair<size_t, size_t>{0, 0}, {3, 8}, {8, 5}, {1, 4093}}) {
      fill_local(from, bytes, ++seed);
      Batch write;
      write.write(local(from, bytes), shared().at(to));
      Status written = execute(connection(), write);
      ASSERT_TRUE(written) << bytes << " bytes: " << written.error().to_string();
      Batch read;
      read.read(local(kBack + to % 64, bytes), shared().at(to));
      Status done = execute(connection(), read);
      ASSERT_TRUE(done) << bytes << " bytes: " << done.error().to_string();
      ASSERT_EQ(std::memcmp(at(from), at(kBack + to % 64), bytes), 0)
          << bytes << " bytes at " << to;
      ASSERT_EQ(target_checksum(0, to, bytes), base::checksum64({at(from), bytes}, 0));
    }
  }
}

TEST_F(OneSidedScenario, AWriteTouchesNothingBesideIt) {
  fill_local(0, 4096, 1);
  Batch around;
  around.write(local(0, 4096), shared().at(0));
  ASSERT_TRUE(execute(connection(), around));
  fill_local(8192, 100, 2);
  Batch inside;
  inside.write(local(8192, 100), shared().at(1001));
  ASSERT_TRUE(execute(connection(), inside));
  let_land(connection(), shared());
  std::memcpy(at(1001), at(8192), 100);
  EXPECT_EQ(target_checksum(0, 0, 4096), base::checksum64({at(0), 4096}, 0));
}

TEST_F(OneSidedScenario, ReadsSeeWhatTheTargetsCpuWrote) {
  ASSERT_TRUE(call_with(kFillShared, FillRequest{777, 5000, 0xa7}));
  Batch batch;
  batch.read(local(0, 5000), shared().at(777));
  ASSERT_TRUE(execute(connection(), batch));
  for (size_t i = 0; i < 5000; ++i) ASSERT_EQ(*at(i), std::byte{0xa7}) << i;
}

TEST_F(OneSidedScenario, AFullBatchIsOneDoorbellOneRoundTripOneCompletion) {
  fill_local(0, 32 * 64, 9);
  Batch batch;
  for (size_t i = 0; i < Batch::kMaxWorkRequests; ++i) {
    batch.write(local(i * 64, 64), shared().at(i * 128));
  }
  const Counters before = connection().counters();
  ASSERT_TRUE(execute(connection(), batch));
  const Counters cost = connection().counters() - before;
  EXPECT_EQ(cost.doorbells, 1u);
  EXPECT_EQ(cost.work_requests, 32u);
  EXPECT_EQ(cost.round_trips, 1u);
  EXPECT_EQ(cost.completions, 1u);
  EXPECT_EQ(cost.bytes_written, 32u * 64);
  EXPECT_EQ(cost.server_messages, 0u);
  let_land(connection(), shared());
  for (size_t i = 0; i < Batch::kMaxWorkRequests; ++i) {
    ASSERT_EQ(target_checksum(0, i * 128, 64), base::checksum64({at(i * 64), 64}, 0)) << i;
  }
}

TEST_F(OneSidedScenario, WriteThenReadInOneBatchCostsOneOfEach) {
  fill_local(0, 64, 3);
  Batch batch;
  batch.write(local(0, 64), shared().at(0)).read(local(4096, 64), shared().at(0));
  const Counters before = connection().counters();
  ASSERT_TRUE(execute(connection(), batch));
  const Counters cost = connection().counters() - before;
  EXPECT_EQ(cost.doorbells, 1u);
  EXPECT_EQ(cost.work_requests, 2u);
  EXPECT_EQ(cost.round_trips, 1u);
  EXPECT_EQ(cost.completions, 1u);
  EXPECT_EQ(cost.bytes_written, 64u);
  EXPECT_EQ(cost.bytes_read, 64u);
  if (connection().capabilities().read_after_write) {
    EXPECT_EQ(std::memcmp(at(0), at(4096), 64), 0);
  }
}

TEST_F(OneSidedScenario, TheNaiveWayCostsTwoOfEach) {
  fill_local(0, 64, 4);
  Batch write;
  write.write(local(0, 64), shared().at(0));
  Batch read;
  read.read(local(4096, 64), shared().at(0));
  const Counters before = connection().counters();
  ASSERT_TRUE(execute(connection(), write));
  ASSERT_TRUE(execute(connection(), read));
  const Counters cost = connection().counters() - before;
  EXPECT_EQ(cost.doorbells, 2u);
  EXPECT_EQ(cost.round_trips, 2u);
  EXPECT_EQ(cost.completions, 2u);
  EXPECT_EQ(std::memcmp(at(0), at(4096), 64), 0);
}

TEST_F(OneSidedScenario, SeveralBatchesAreWaitedForInOneRoundTrip) {
  fill_local(0, 3 * 64, 5);
  Completion done[3];
  Completion* all[3] = {&done[0], &done[1], &done[2]};
  const Counters before = connection().counters();
  for (size_t i = 0; i < 3; ++i) {
    Batch batch;
    batch.write(local(i * 64, 64), shared().at(i * 64));
    ASSERT_TRUE(connection().post(batch, &done[i]));
  }
  const Status waited = executor_.run(connection().wait(all));
  ASSERT_TRUE(waited);
  const Counters cost = connection().counters() - before;
  EXPECT_EQ(cost.doorbells, 3u);
  EXPECT_EQ(cost.completions, 3u);
  EXPECT_EQ(cost.round_trips, 1u);
}

TEST_F(OneSidedScenario, UnsignaledBatchesNeedNobodyToWait) {
  // Far more than any send queue holds: the provider takes its entries back by itself.
  uint64_t posted = 0;
  auto one = [&] {
    fill_local(0, 8, posted);
    Batch batch;
    batch.write(local(0, 8), shared().at(0));
    Status status = connection().post(batch, nullptr);
    if (status) ++posted;
    EXPECT_TRUE(status || status.code() == ErrorCode::kBackPressure) << status.error().to_string();
    return posted == 20'000 || (!status && status.code() != ErrorCode::kBackPressure);
  };
  // Time has to pass, also where it is virtual.
  auto pump = [](base::Executor& executor) -> base::Task<void> {
    co_await executor.sleep_for(100);
  };
  const uint64_t deadline = clock_.now_ns() + kPatientTimeoutNs;
  while (!one() && clock_.now_ns() < deadline) executor_.run(pump(executor_));
  EXPECT_EQ(posted, 20'000u);
  Batch last;
  last.write(local(0, 8), shared().at(0));
  Status done = execute(connection(), last);
  while (!done && done.code() == ErrorCode::kBackPressure && clock_.now_ns() < deadline) {
    executor_.run(pump(executor_));
    done = execute(connection(), last);
  }
  ASSERT_TRUE(done) << done.error().to_string();
  let_land(connection(), shared());
  EXPECT_EQ(target_checksum(0, 0, 8), base::checksum64({at(0), 8}, 0));
}

TEST_F(OneSidedScenario, TheLaterWriteWinsWhereOrderIsDeclared) {
  if (!connection().capabilities().write_after_write) {
    GTEST_SKIP() << "this provider does not declare write_after_write";
  }
  for (uint64_t round = 0; round < 500; ++round) {
    Batch batch;
    for (uint64_t i = 0; i < 8; ++i) {
      const uint64_t value = round * 8 + i;
      std::memcpy(at(i * 8), &value, 8);
      batch.write(local(i * 8, 8), shared().at(64));
    }
    ASSERT_TRUE(execute(connection(), batch));
    Batch read;
    read.read(local(4096, 8), shared().at(64));
    ASSERT_TRUE(execute(connection(), read));
    ASSERT_EQ(word_at(4096), round * 8 + 7);
  }
}

TEST_F(OneSidedScenario, AReadSeesTheWritesBeforeItWhereOrderIsDeclared) {
  if (!connection().capabilities().read_after_write) {
    GTEST_SKIP() << "this provider does not declare read_after_write";
  }
  for (uint64_t round = 1; round <= 500; ++round) {
    std::memcpy(at(0), &round, 8);
    Batch batch;
    batch.write(local(0, 8), shared().at(128)).read(local(4096, 8), shared().at(128));
    ASSERT_TRUE(execute(connection(), batch));
    ASSERT_EQ(word_at(4096), round);
  }
}

TEST_F(OneSidedScenario, CompareSwapSwapsOnlyWhatItExpects) {
  std::memset(at(0), 0, 64);
  Batch zero;
  zero.write(local(0, 64), shared().at(512));
  ASSERT_TRUE(execute(connection(), zero));
  Batch swap;
  swap.compare_swap(local(64, 8), shared().at(512), 0, 42);
  if (connection().capabilities().atomics == AtomicScope::kNone) {
    Completion completion;
    Status posted = connection().post(swap, &completion);
    ASSERT_FALSE(posted);
    EXPECT_EQ(posted.code(), ErrorCode::kUnsupported);
    EXPECT_FALSE(connection().broken());
    return;
  }
  ASSERT_TRUE(execute(connection(), swap));
  EXPECT_EQ(word_at(64), 0u);
  Batch again;
  again.compare_swap(local(72, 8), shared().at(512), 0, 43).read(local(80, 8), shared().at(512));
  ASSERT_TRUE(execute(connection(), again));
  EXPECT_EQ(word_at(72), 42u) << "the old value comes back";
  Batch read;
  read.read(local(88, 8), shared().at(512));
  ASSERT_TRUE(execute(connection(), read));
  EXPECT_EQ(word_at(88), 42u) << "a failed compare-swap changes nothing";
}

TEST_F(OneSidedScenario, FetchAddsOfTwoConnectionsAddUp) {
  if (connection().capabilities().atomics == AtomicScope::kNone) {
    Batch add;
    add.fetch_add(local(0, 8), shared().at(0), 1);
    Status posted = connection().post(add, nullptr);
    ASSERT_FALSE(posted);
    EXPECT_EQ(posted.code(), ErrorCode::kUnsupported);
    return;
  }
  auto other = connect_raw();
  ASSERT_NE(other, nullptr);
  std::memset(at(0), 0, 8);
  Batch zero;
  zero.write(local(0, 8), shared().at(1024));
  ASSERT_TRUE(execute(connection(), zero));
  uint64_t sum = 0;
  for (uint64_t round = 0; round < 100; ++round) {
    Batch mine;
    mine.fetch_add(local(64, 8), shared().at(1024), round);
    Batch theirs;
    theirs.fetch_add(local(72, 8), shared().at(1024), 1000 * round);
    Completion first, second;
    ASSERT_TRUE(connection().post(mine, &first));
    ASSERT_TRUE(other->connection->post(theirs, &second));
    Completion* one[] = {&first};
    Completion* two[] = {&second};
    ASSERT_TRUE(executor_.run(connection().wait(one)));
    ASSERT_TRUE(executor_.run(other->connection->wait(two)));
    EXPECT_TRUE(word_at(64) == sum || word_at(72) == sum) << "one of them was first";
    sum += 1001 * round;
  }
  Batch read;
  read.read(local(80, 8), shared().at(1024));
  ASSERT_TRUE(execute(connection(), read));
  EXPECT_EQ(word_at(80), sum);
}

TEST_F(OneSidedScenario, ManyAtomicsInOneBatchAreEachAnswered) {
  if (connection().capabilities().atomics == AtomicScope::kNone) {
    GTEST_SKIP() << "this provider has no atomics";
  }
  std::memset(at(0), 0, 2048);
  Batch zero;
  zero.write(local(0, 2048), shared().at(2048));
  ASSERT_TRUE(execute(connection(), zero));
  Batch locks;
  for (uint64_t i = 0; i < 16; ++i) {
    locks.compare_swap(local(4096 + i * 8, 8), shared().at(2048 + i * 64), 0, i + 1);
    locks.fetch_add(local(8192 + i * 8, 8), shared().at(2048 + i * 64), 100);
  }
  ASSERT_TRUE(execute(connection(), locks));
  for (uint64_t i = 0; i < 16; ++i) {
    EXPECT_EQ(word_at(4096 + i * 8), 0u) << i;
    EXPECT_EQ(word_at(8192 + i * 8), i + 1) << i;
  }
}

TEST_F(OneSidedScenario, AnImmediateArrivesAfterItsData) {
  fill_local(0, 4096, 7);
  const uint64_t id = link_->hello.connection_id;
  for (uint32_t i = 1; i <= 50; ++i) {
    Batch batch;
    batch.write_immediate(local(0, 4096), shared().at(8192), 1000 + i);
    ASSERT_TRUE(execute(connection(), batch));
  }
  ASSERT_TRUE(run_until([&] { return raw_state(id).immediates == 50; }, kPatientTimeoutNs));
  EXPECT_EQ(raw_state(id).last_immediate, 1050u);
  EXPECT_EQ(target_checksum(0, 8192, 4096), base::checksum64({at(0), 4096}, 0));
}

TEST_F(OneSidedScenario, TheTargetWritesIntoThisSidesMemory) {
  const SendRequest send{link_->hello.connection_id, region_->remote(), 5000, 0x00c0ffee, 0x5e};
  ASSERT_TRUE(call_with(kSendToRaw, send));
  ASSERT_TRUE(run_until([&] { return !link_->immediates.empty(); }, kPatientTimeoutNs));
  EXPECT_EQ(link_->immediates.front(), 0x00c0ffeeu);
  EXPECT_EQ(connection().counters().immediates_received, 1u);
  for (size_t i = 0; i < 5000; ++i) ASSERT_EQ(*at(i), std::byte{0x5e}) << i;
}

TEST_F(OneSidedScenario, ALoopbackConnectionReachesThisSidesOwnMemory) {
  auto made = executor_.run(device_->loopback());
  if (!made) {
    EXPECT_EQ(made.code(), ErrorCode::kUnsupported);
    return;
  }
  fill_local(0, 64, 11);
  Batch batch;
  batch.write(local(0, 64), region_->remote().at(4096))
      .read(local(8192, 64), region_->remote().at(4096));
  ASSERT_TRUE(execute(**made, batch));
  EXPECT_EQ(std::memcmp(at(0), at(4096), 64), 0);
  if ((*made)->capabilities().atomics != AtomicScope::kNone) {
    const uint64_t value = 5;
    std::memcpy(at(0), &value, 8);
    Batch add;
    add.fetch_add(local(64, 8), region_->remote().at(0), 6);
    ASSERT_TRUE(execute(**made, add));
    EXPECT_EQ(word_at(64), 5u);
    EXPECT_EQ(word_at(0), 11u);
  }
}

}  // namespace
}  // namespace pmstore::scenario
