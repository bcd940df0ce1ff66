// What an Optane DIMM's counters were seen to say, from the memory side of the model alone: a
// device or a core that writes as fast as it is let.
#include <gtest/gtest.h>

#include "base/random.h"
#include "model/memory_system.h"
#include "tests/sim/reserved_range.h"

namespace pmstore::sim {
namespace {

using model::DimmCounters;
using model::Medium;
using model::MemoryOptions;
using model::MemorySystem;

constexpr size_t kRangeBytes = size_t{16} << 30;  // hundreds of times the cache
constexpr uint32_t kCores = 24;
constexpr uint64_t kLink = 80;  // ps per byte

struct Measured {
  double reads_per_write;
  double amplification;
  double writes_per_us;
};

class MemoryCounters : public ::testing::Test {
 protected:
  void start(bool ddio) {
    memory_ = std::make_unique<MemorySystem>(*model::named_parameters("optane-cx5"),
                                             MemoryOptions{1, ddio, 1});
    memory_->placement().place(range_.bytes(), Medium::kNvm, 0);
  }

  // Runs `write(i)`, which gives the time, `count` times after `warm_up` times.
  template <typename Write>
  Measured measure(uint64_t warm_up, uint64_t count, Write&& write) {
    for (uint64_t i = 0; i < warm_up; ++i) write(i);
    const DimmCounters before = memory_->all_dimms();
    const uint64_t begin_ps = now_ps_;
    for (uint64_t i = 0; i < count; ++i) write(warm_up + i);
    const DimmCounters done = memory_->all_dimms() - before;
    return {static_cast<double>(done.read_requests) / static_cast<double>(count),
            done.write_amplification(),
            static_cast<double>(count) * 1e6 / static_cast<double>(now_ps_ - begin_ps)};
  }

  void device_write(size_t offset, uint32_t bytes) {
    now_ps_ =
        memory_->device_write(0, now_ps_ + bytes * kLink, range_.at(offset), bytes).accepted_ps;
  }
  size_t random_place(size_t unit) { return random_.below(kRangeBytes / unit - 64) * unit; }

  ReservedRange range_{kRangeBytes};
  Random random_{1};
  uint64_t now_ps_ = 0;
  std::unique_ptr<MemorySystem> memory_;
};

TEST_F(MemoryCounters, OneSidedWritesReadNothingOnceAlignedAndPadded) {
  for (const bool ddio : {false, true}) {
    const auto reads = [&](size_t alignment, uint32_t bytes) {
      start(ddio);
      return measure(1000, 100'000, [&](uint64_t) { device_write(random_place(alignment), bytes); })
          .reads_per_write;
    };
    const double unaligned = reads(8, 48);  // five of eight places are in two lines
    EXPECT_NEAR(unaligned, 1 + 5.0 / 8, 0.01) << ddio;
    const double aligned = reads(64, 48);
    EXPECT_NEAR(aligned, 1, 0.01) << ddio;
    EXPECT_EQ(reads(64, 64), 0) << ddio;
    EXPECT_EQ(reads(256, 256), 0) << ddio;
  }
}

TEST_F(MemoryCounters, Small64ByteWritesWithoutLocalityAreAmplifiedFourTimes) {
  start(false);
  const Measured m = measure(1000, 200'000, [&](uint64_t) { device_write(random_place(64), 64); });
  EXPECT_NEAR(m.amplification, 4, 0.01);
  EXPECT_NEAR(m.writes_per_us, 52, 1);  // and the media's limit is what is left
}

TEST_F(MemoryCounters, BulkDeviceWritesAreAmplifiedTwiceWithDdioAndNotWithout) {
  for (const bool ddio : {false, true}) {
    start(ddio);
    // Enough to fill the ways that devices may use.
    const Measured m =
        measure(3'000, 5'000, [&](uint64_t) { device_write(random_place(4096), 4096); });
    EXPECT_NEAR(m.amplification, ddio ? 2 : 1, ddio ? 0.15 : 0.001);
    EXPECT_EQ(m.reads_per_write, 0);
  }
}

TEST_F(MemoryCounters, TwoSidedWritesReadOneLineEachWithStoresAndNoneWithStreamingOnes) {
  start(true);
  const auto run = [&](auto&& store) {
    return measure(800'000, 100'000, [&](uint64_t i) {
      const auto core = static_cast<uint32_t>(i % kCores);
      const uint64_t done_ps = store(core, range_.at(random_place(64)));
      if (core == 0) now_ps_ = done_ps;
    });
  };
  const Measured stored =
      run([&](uint32_t core, const void* to) { return memory_->cpu_store(core, now_ps_, to, 16); });
  EXPECT_NEAR(stored.reads_per_write, 1.0, 0.005);
  // Every line is read once, and one of eight places of 16 B in multiples of 8 is in two lines.
  start(true);
  const Measured anywhere = measure(800'000, 100'000, [&](uint64_t i) {
    const auto core = static_cast<uint32_t>(i % kCores);
    const uint64_t done_ps = memory_->cpu_store(core, now_ps_, range_.at(random_place(8)), 16);
    if (core == 0) now_ps_ = done_ps;
  });
  EXPECT_NEAR(anywhere.reads_per_write, 1 + 1.0 / 8, 0.01);
  start(true);
  const Measured streamed = run([&](uint32_t core, const void* to) {
    return memory_->cpu_store_non_temporal(core, now_ps_, to, 64);
  });
  EXPECT_EQ(streamed.reads_per_write, 0);
  EXPECT_NEAR(streamed.amplification, 4, 0.01);
}

}  // namespace
}  // namespace pmstore::sim
