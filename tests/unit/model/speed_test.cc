// How fast the model runs, and that its rates are those of the hardware.
#include <gtest/gtest.h>
#include <time.h>

#include <queue>

#include "tests/unit/model/model_pair.h"

namespace pmstore::model {
namespace {

using fabric::Batch;

#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
constexpr bool kOptimized = true;
#else
constexpr bool kOptimized = false;
#endif

double cpu_seconds() {
  timespec ts;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
  return static_cast<double>(ts.tv_sec) + static_cast<double>(ts.tv_nsec) * 1e-9;
}

// Many cores of several hosts that write to one server.
class Crowd {
 public:
  static constexpr size_t kHosts = 4;
  static constexpr size_t kCores = 8;  // of each

  explicit Crowd(uint64_t seed = 1) {
    Topology topology;
    topology.hosts = 1 + kHosts;
    topology.seed = seed;
    pair_.emplace(*named_parameters("optane-cx5"), topology);
    for (size_t i = 0; i < kHosts * kCores; ++i) {
      Host& host = pair_->cluster->host(1 + i % kHosts);
      devices_.push_back(pair_->open(host.on_core(i / kHosts)));
      regions_.push_back(
          *devices_.back()->register_memory(pair_->local.bytes, fabric::Access::kLocal));
      connections_.push_back(pair_->connect(*devices_.back()));
    }
  }
  ~Crowd() { connections_.clear(); }

  // `window` writers on each core, each of them `count` WRITEs of `bytes`; M/s of virtual time.
  double run(size_t window, size_t count, uint32_t bytes) {
    const uint64_t began_ns = pair_->executor.now_ns();
    auto all = [&]() -> base::Task<void> {
      running_ = connections_.size() * window;
      for (size_t i = 0; i < running_; ++i) {
        pair_->executor.spawn(writer(i % connections_.size(), i, count, bytes));
      }
      while (running_ > 0) co_await done_.wait();
    };
    pair_->executor.run(all());
    const auto writes = static_cast<double>(connections_.size() * window * count);
    return 1000 * writes / static_cast<double>(pair_->executor.now_ns() - began_ns);
  }
  ModelPair& pair() { return *pair_; }

 private:
  base::Task<void> writer(size_t at, size_t number, size_t count, uint32_t bytes) {
    base::Random random(number + 1);
    for (size_t i = 0; i < count; ++i) {
      Batch batch;
      batch.write({pair_->local.bytes.data(), bytes, regions_[at].get()},
                  pair_->in_dram(random.below(1000) * 1024));
      const Status done = co_await connections_[at]->execute(batch);
      EXPECT_TRUE(done);
    }
    if (--running_ == 0) done_.notify_all();
  }

  std::optional<ModelPair> pair_{std::in_place};
  base::WaitList done_{pair_->executor};
  std::vector<std::unique_ptr<fabric::Device>> devices_;
  std::vector<std::unique_ptr<fabric::MemoryRegion>> regions_;
  std::vector<std::unique_ptr<fabric::Connection>> connections_;
  size_t running_ = 0;
};

// What a model does all the time, as a measure of the machine: numbers that go through a heap of a
// thousand, per CPU second.
double heap_turns_per_second() {
  constexpr size_t kTurns = 50'000;
  base::Random random(1);
  std::priority_queue<uint64_t> heap;
  for (size_t i = 0; i < 1000; ++i) heap.push(random.next());
  const double began_s = cpu_seconds();
  for (size_t i = 0; i < kTurns; ++i) {
    heap.push(random.next());
    heap.pop();
  }
  return static_cast<double>(kTurns) / (cpu_seconds() - began_s);
}

TEST(ModelSpeed, AWriteIsFewEvents) {
  Crowd crowd;
  Cluster& cluster = *crowd.pair().cluster;
  const uint64_t events = cluster.events().events();
  const uint64_t operations = cluster.operations();
  // In turns with the heap, and the best turn of each: neither a slow machine nor its slow moments
  // are charged to the model.
  double per_second = 0;
  double heap_per_second = 0;
  for (int turn = 0; turn < 20; ++turn) {
    const uint64_t before = cluster.operations();
    const double began_s = cpu_seconds();
    crowd.run(4, 25, 64);
    const auto done = static_cast<double>(cluster.operations() - before);
    per_second = std::max(per_second, done / (cpu_seconds() - began_s));
    heap_per_second = std::max(heap_per_second, heap_turns_per_second());
  }
  const auto done = static_cast<double>(cluster.operations() - operations);
  const double events_per_write = static_cast<double>(cluster.events().events() - events) / done;
  EXPECT_LT(events_per_write, 8);
  // Where the heap makes 37 million, this is 700,000 to 1,000,000; the aim is 300,000.
  EXPECT_GT(per_second / heap_per_second, kOptimized ? 0.006 : 0);
  printf("%.0f one-sided operations per CPU second, %.1f events each; %.0f turns of a heap\n",
         per_second, events_per_write, heap_per_second);
}

TEST(ModelSpeed, TheTargetTakesWritesAtThePublishedRates) {
  Crowd crowd;
  crowd.run(8, 100, 16);
  EXPECT_NEAR(crowd.run(8, 300, 16), 60, 3);  // M/s
  EXPECT_NEAR(crowd.run(8, 300, 64), 45, 2);
  // The wire: 100 Gb/s, 256 B of payload and 98 of headers.
  EXPECT_NEAR(crowd.run(8, 300, 256), 12.5e3 / (256 + 98), 1);
}

}  // namespace
}  // namespace pmstore::model
