#include "model/memory_system.h"

#include <gtest/gtest.h>

#include <vector>

namespace pmstore::model {
namespace {

constexpr uint64_t kNs = 1000;
constexpr uint64_t kLater = 1'000'000 * kNs;  // all is idle again

class ModelMemorySystem : public ::testing::Test {
 protected:
  ModelMemorySystem() : nvm_(1 << 20), far_nvm_(1 << 20), dram_(1 << 20) { start(2, true); }
  void start(uint32_t sockets, bool ddio) {
    memory_ = std::make_unique<MemorySystem>(parameters_, MemoryOptions{sockets, ddio, 1});
    memory_->placement().place(nvm_, Medium::kNvm, 0);
    if (sockets > 1) memory_->placement().place(far_nvm_, Medium::kNvm, 1);
    memory_->placement().place(dram_, Medium::kDram, 0);
  }
  DimmCounters settled() {
    memory_->settle();
    return memory_->all_dimms();
  }

  Parameters parameters_ = *named_parameters("optane-cx5");
  std::vector<std::byte> nvm_, far_nvm_, dram_;
  std::unique_ptr<MemorySystem> memory_;
};

TEST_F(ModelMemorySystem, CpuReadsTakeWhatWasPublished) {
  EXPECT_EQ(memory_->cpu_load(0, 0, &dram_[0], 8), 82 * kNs);
  EXPECT_NEAR(static_cast<double>(memory_->cpu_load(0, kLater, &nvm_[0], 8) - kLater), 271 * kNs,
              2 * kNs);
  // The line is the core's own now, and another core's load finds it in the shared cache.
  EXPECT_EQ(memory_->cpu_load(0, kLater, &nvm_[0], 8) - kLater, 1 * kNs);
  EXPECT_EQ(memory_->cpu_load(1, kLater, &nvm_[0], 8) - kLater, 20 * kNs);
  // From the other socket: there and back more, and the link.
  EXPECT_EQ(memory_->cpu_load(24, 2 * kLater, &nvm_[4096], 8) - 2 * kLater,
            (3'200 + 65'000 + 250'000 + 65'000 + 20'000));
}

TEST_F(ModelMemorySystem, PersistingAStoreTakesWhatWasPublished) {
  memory_->cpu_store(0, 0, &nvm_[0], 8);  // the line is there
  uint64_t now = memory_->cpu_store(0, kLater, &nvm_[0], 8);
  now = memory_->cpu_flush(0, now, &nvm_[0], 8);
  EXPECT_EQ(memory_->cpu_drain(0, now) - kLater, 62 * kNs);
  now = memory_->cpu_store_non_temporal(0, 2 * kLater, &nvm_[4096], 64);
  EXPECT_EQ(memory_->cpu_drain(0, now) - 2 * kLater, 90 * kNs);
  // A drain without anything to wait for takes no time.
  EXPECT_EQ(memory_->cpu_drain(0, 3 * kLater), 3 * kLater);
}

TEST_F(ModelMemorySystem, AWriteBackWaitsForTheLineToBeOwned) {
  uint64_t now = memory_->cpu_store(0, 0, &nvm_[0], 8);
  EXPECT_EQ(now, 1 * kNs);
  now = memory_->cpu_flush(0, now, &nvm_[0], 8);
  EXPECT_EQ(memory_->cpu_drain(0, now), (20 + 250 + 60) * kNs);
}

TEST_F(ModelMemorySystem, StoresReadTheirLineOnceAndStreamingStoresOnlyForAPart) {
  for (int i = 0; i < 100; ++i) memory_->cpu_store(0, 0, &nvm_[i * 512], 64);
  EXPECT_EQ(memory_->all_dimms().read_requests, 100u);
  memory_->cpu_store(0, 0, &nvm_[0], 64);
  EXPECT_EQ(memory_->all_dimms().read_requests, 100u);
  for (int i = 0; i < 100; ++i) memory_->cpu_store_non_temporal(0, 0, &nvm_[i * 512 + 256], 64);
  EXPECT_EQ(memory_->all_dimms().read_requests, 100u);
  memory_->cpu_store_non_temporal(0, 0, &nvm_[900'000], 16);
  EXPECT_EQ(memory_->all_dimms().read_requests, 101u);
}

TEST_F(ModelMemorySystem, DeviceWritesReadTheLinesOfWhichTheyHaveAPart) {
  for (const bool ddio : {true, false}) {
    start(1, ddio);
    const auto reads = [&](size_t offset, uint32_t bytes) {
      const uint64_t before = memory_->all_dimms().read_requests;
      memory_->device_write(0, 0, &nvm_[offset], bytes);
      return memory_->all_dimms().read_requests - before;
    };
    EXPECT_EQ(reads(0, 64), 0u) << ddio;
    EXPECT_EQ(reads(4096, 16), 1u) << ddio;
    EXPECT_EQ(reads(8192 + 56, 16), 2u) << ddio;
    EXPECT_EQ(reads(12288 + 32, 256), 2u) << ddio;
  }
}

TEST_F(ModelMemorySystem, WithDdioDataStaysInTheCacheUntilItIsPushedOut) {
  EXPECT_TRUE(memory_->device_write(0, 0, &nvm_[0], 64).in_cache);
  EXPECT_EQ(memory_->all_dimms().write_requests, 0u);
  EXPECT_EQ(memory_->cpu_load(0, kLater, &nvm_[0], 8) - kLater, 20 * kNs);
  EXPECT_EQ(settled().write_requests, 1u);
  memory_->set_ddio(false);
  EXPECT_FALSE(memory_->device_write(0, 2 * kLater, &nvm_[0], 64).in_cache);
  EXPECT_EQ(memory_->all_dimms().write_requests, 2u);
  EXPECT_GT(memory_->cpu_load(0, 3 * kLater, &nvm_[0], 8) - 3 * kLater, 100 * kNs);
}

TEST_F(ModelMemorySystem, DdioDoesNotReachTheOtherSocket) {
  EXPECT_FALSE(memory_->device_write(0, 0, &far_nvm_[0], 64).in_cache);
  EXPECT_EQ(memory_->all_dimms().write_requests, 1u);
}

TEST_F(ModelMemorySystem, WritesBecomeVisibleInOrderAndReadsWaitForThem) {
  const auto slow = memory_->device_write(0, 0, &nvm_[0], 16);  // reads its line first
  EXPECT_EQ(slow.visible_ps, 270 * kNs);
  const auto fast = memory_->device_write(0, 1 * kNs, &dram_[0], 64);
  EXPECT_EQ(fast.visible_ps, 270 * kNs);
  EXPECT_EQ(fast.accepted_ps, 1 * kNs);
  EXPECT_EQ(memory_->device_read(0, 2 * kNs, &dram_[4096], 64), (270 + 62) * kNs);
}

TEST_F(ModelMemorySystem, TheRootComplexStopsADeviceThatIsTooFast) {
  start(1, false);
  uint64_t accepted = 0;
  constexpr uint64_t kWrites = 4000;  // 4,000 XPLines over six DIMMs, all written at once
  for (uint64_t i = 0; i < kWrites; ++i) {
    accepted = memory_->device_write(0, 0, &nvm_[i * 256], 256).accepted_ps;
  }
  const double media_ns = static_cast<double>(kWrites) * parameters_.dimm.media_write_ns / 6;
  EXPECT_GT(static_cast<double>(accepted) / kNs, media_ns * 0.8);
  EXPECT_LT(static_cast<double>(accepted) / kNs, media_ns);
}

TEST_F(ModelMemorySystem, WritesFromTheOtherSocketHaveTheirOwnCost) {
  const auto rate_ns = [&](uint32_t bytes) {
    start(2, true);
    constexpr uint64_t kWrites = 2000;
    uint64_t accepted = 0;
    for (uint64_t i = 0; i < kWrites; ++i) {
      accepted = memory_->device_write(0, 0, &far_nvm_[i * 512], bytes).accepted_ps;
    }
    return static_cast<double>(accepted) / kNs / kWrites;
  };
  EXPECT_NEAR(rate_ns(16), parameters_.numa.owned_line_ns, 10);
  EXPECT_NEAR(rate_ns(512) / 8, parameters_.numa.full_line_ns, 2);
}

TEST_F(ModelMemorySystem, ALineMovesBetweenTheCachesOfSockets) {
  memory_->cpu_store(0, 0, &nvm_[0], 64);
  EXPECT_EQ(memory_->cpu_load(24, kLater, &nvm_[0], 8) - kLater, (2 * 65 + 20) * kNs);
  EXPECT_EQ(memory_->cpu_load(24, kLater, &nvm_[0], 8) - kLater, 1 * kNs);
  EXPECT_EQ(settled().write_requests, 1u);  // it stayed dirty
}

TEST_F(ModelMemorySystem, CountersAreThoseOfTheDimmThatHasTheStripe) {
  EXPECT_EQ(memory_->dimms(), 12u);
  for (int i = 0; i < 3; ++i) memory_->device_read(0, 0, &nvm_[i * 4096 * 6], 64);
  size_t touched = 0;
  for (size_t i = 0; i < memory_->dimms(); ++i) touched += memory_->dimm(i).read_requests == 3;
  EXPECT_EQ(touched, 1u);
}

}  // namespace
}  // namespace pmstore::model
