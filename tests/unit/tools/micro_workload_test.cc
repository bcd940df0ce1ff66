#include "tools/bench/micro_workload.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/clock.h"
#include "tools/bench/micro_server.h"

namespace pmstore::tools {
namespace {

using persist::Domain;
using persist::Rule;
using persist::Rules;
using persist::WriteLanding;
using persist::WriteStrategy;

// The stores of the server's CPU.
class Recorder final : public persist::Observer {
 public:
  void on_store(const void*, const void*, size_t, bool non_temporal) override {
    ++(non_temporal ? streamed : cached);
  }
  void on_flush(const void*, size_t) override { ++flushes; }
  void on_drain() override { ++drains; }
  uint64_t streamed = 0, cached = 0, flushes = 0, drains = 0;
};

// Half a microsecond at every reading: what takes time here does not depend on the machine's load.
class TickingClock final : public base::Clock {
 public:
  uint64_t now_ns() const override { return now_ns_ += 500; }
  bool advance_to(uint64_t) override { return false; }

 private:
  mutable uint64_t now_ns_ = 0;
};

// Server and clients on one executor, over the local provider.
class MicroWorkload : public testing::Test {
 protected:
  static constexpr size_t kBytes = 1u << 20;

  MicroWorkload() : executor_(clock_) {
    device_ = *fabric::open_device(fabric::Scheme::kLocal, executor_);
    client_device_ = *fabric::open_device(fabric::Scheme::kLocal, executor_);
    dram_.resize(kBytes + 64);
    nvm_.resize(kBytes + 64);
    options_.dram.bytes = aligned(dram_);
    options_.dram.capability = {Domain::kCpuCache, WriteLanding::kCpu, false};
    options_.nvm.bytes = aligned(nvm_);
    options_.nvm.capability = {Domain::kCpuCache, WriteLanding::kCpu, false};
    options_.nvm.observer = &recorder_;
    options_.nvm.on_load = [this](const void*, size_t bytes) { loaded_ += bytes; };
    point_.range_bytes = kBytes;
    point_.ops = 1000;
  }

  static std::span<std::byte> aligned(std::vector<std::byte>& memory) {
    const auto address = reinterpret_cast<uintptr_t>(memory.data());
    return std::span(memory).subspan(persist::round_up(address, 64) - address, kBytes);
  }

  Result<MicroTally> run(uint32_t workers = 1) {
    servers_.clear();
    std::vector<fabric::Uri> uris;
    for (uint32_t i = 0; i < workers; ++i) {
      auto server = MicroServer::start(*device_, options_, micro_worker_uri(uri_, i, 0));
      if (!server) return server.error();
      (*server)->set_workers(std::vector<uint16_t>(workers, 0));
      servers_.push_back(std::move(*server));
    }
    control_ = std::make_unique<MicroControl>(point_);
    control_->on_begin = [this] { ++begins_; };
    control_->on_end = [this] { ++ends_; };
    fabric::Device* const devices[] = {client_device_.get()};
    const std::span<fabric::Device* const> all(devices);
    return executor_.run(run_micro(executor_, all, uri_, point_, *control_));
  }

  static size_t written(const std::vector<std::byte>& memory) {
    return memory.size() -
           static_cast<size_t>(std::count(memory.begin(), memory.end(), std::byte{0}));
  }

  TickingClock clock_;
  base::Executor executor_;
  std::unique_ptr<fabric::Device> device_;
  std::unique_ptr<fabric::Device> client_device_;
  std::vector<std::byte> dram_;
  std::vector<std::byte> nvm_;
  Recorder recorder_;
  uint64_t loaded_ = 0;
  MicroServerOptions options_;
  MicroPoint point_;
  fabric::Uri uri_{fabric::Scheme::kLocal, "micro-workload", 0};
  std::vector<std::unique_ptr<MicroServer>> servers_;
  std::unique_ptr<MicroControl> control_;
  int begins_ = 0, ends_ = 0;
};

TEST_F(MicroWorkload, OneSidedWritesReachTheMemory) {
  point_.medium = MicroMedium::kNvm;
  point_.pattern = MicroPattern::kSequential;
  point_.window = 1;
  const auto tally = run();
  ASSERT_TRUE(tally) << tally.error().message;
  EXPECT_EQ(tally->latency_ns.count(), 1000u);
  EXPECT_EQ(tally->counters.doorbells, 1000u);
  EXPECT_EQ(tally->counters.work_requests, 1000u);
  EXPECT_EQ(tally->counters.server_messages, 0u);
  EXPECT_GT(tally->rate_per_s(), 0);
  EXPECT_EQ(written(nvm_), 1100u * 64) << "the warm-up is a tenth";
  EXPECT_EQ(written(dram_), 0u);
  EXPECT_EQ(recorder_.cached + recorder_.streamed, 0u);
  EXPECT_EQ(begins_, 1);
  EXPECT_EQ(ends_, 1);
}

TEST_F(MicroWorkload, BatchesHaveOneDoorbellUnlessTheRuleIsOff) {
  point_.batch = 8;
  const auto batched = run();
  ASSERT_TRUE(batched) << batched.error().message;
  EXPECT_EQ(batched->latency_ns.count(), 1000u);
  EXPECT_EQ(batched->counters.doorbells, 125u);
  EXPECT_EQ(batched->counters.work_requests, 1000u);
  point_.rules = Rules::all().without(Rule::kH9);
  const auto single = run();
  ASSERT_TRUE(single) << single.error().message;
  EXPECT_EQ(single->counters.doorbells, 1000u);
  EXPECT_EQ(single->counters.completions, 125u);
}

TEST_F(MicroWorkload, ClientsAndConnectionsShareTheOperations) {
  point_.clients = 3;
  point_.connections = 2;
  const auto tally = run();
  ASSERT_TRUE(tally) << tally.error().message;
  EXPECT_EQ(tally->latency_ns.count(), 1000u);
  EXPECT_EQ(begins_, 1);
  EXPECT_EQ(ends_, 1);
}

TEST_F(MicroWorkload, FewerOperationsThanClients) {
  point_.clients = 4;
  point_.ops = 2;
  const auto tally = run();
  ASSERT_TRUE(tally) << tally.error().message;
  EXPECT_EQ(tally->latency_ns.count(), 2u);
}

TEST_F(MicroWorkload, ByTime) {
  point_.ops = 0;
  point_.warmup_ns = 1'000'000;
  point_.measured_ns = 10'000'000;
  const auto tally = run();
  ASSERT_TRUE(tally) << tally.error().message;
  EXPECT_GE(tally->seconds(), 0.009);
  EXPECT_GT(tally->latency_ns.count(), 100u);
}

TEST_F(MicroWorkload, TwoSidedStoresAsTheRulesSay) {
  point_.side = MicroSide::kTwoSided;
  point_.medium = MicroMedium::kNvm;
  const auto streamed = run();
  ASSERT_TRUE(streamed) << streamed.error().message;
  EXPECT_EQ(streamed->counters.server_messages, 1000u);
  EXPECT_GE(recorder_.streamed, 1100u);
  EXPECT_EQ(recorder_.cached, 0u);
  recorder_ = {};
  point_.rules = Rules::all().without(Rule::kH7);
  ASSERT_TRUE(run());
  EXPECT_EQ(recorder_.streamed, 0u);
  EXPECT_GE(recorder_.cached, 1100u);
  EXPECT_EQ(recorder_.flushes + recorder_.drains, 0u) << "nobody asked for durability";
}

TEST_F(MicroWorkload, TwoSidedReadsLoadAndEchoesTouchNothing) {
  point_.side = MicroSide::kTwoSided;
  point_.medium = MicroMedium::kNvm;
  point_.op = MicroOp::kRead;
  const auto read = run();
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_GE(loaded_, 1100u * 64);
  loaded_ = 0;
  point_.op = MicroOp::kEcho;
  const auto echo = run();
  ASSERT_TRUE(echo) << echo.error().message;
  EXPECT_EQ(echo->counters.server_messages, 1000u);
  EXPECT_EQ(loaded_ + recorder_.cached + recorder_.streamed, 0u);
}

TEST_F(MicroWorkload, AtomicsAddUp) {
  point_.op = MicroOp::kAtomic;
  point_.payload_bytes = 8;
  point_.window = 1;
  ASSERT_TRUE(run());
  uint64_t sum = 0;
  const auto words = std::span(reinterpret_cast<const uint64_t*>(options_.dram.bytes.data()),
                               kBytes / sizeof(uint64_t));
  for (const uint64_t word : words) sum += word;
  EXPECT_EQ(sum, 1100u);
  EXPECT_EQ(written(nvm_), 0u);
}

TEST_F(MicroWorkload, PersistentWritesByEveryStrategy) {
  point_.medium = MicroMedium::kNvm;
  point_.persistent = true;
  for (const auto& [strategy, doorbells] : {std::pair{WriteStrategy::kNaive, 2000u},
                                            {WriteStrategy::kOutstanding, 2000u},
                                            {WriteStrategy::kDoorbell, 1000u}}) {
    point_.strategy = strategy;
    const auto tally = run();
    ASSERT_TRUE(tally) << tally.error().message;
    EXPECT_EQ(tally->strategy, strategy);
    EXPECT_EQ(tally->counters.doorbells, doorbells);
  }
  point_.side = MicroSide::kTwoSided;
  point_.strategy = WriteStrategy::kAuto;
  const auto two_sided = run();
  ASSERT_TRUE(two_sided) << two_sided.error().message;
  EXPECT_EQ(two_sided->strategy, WriteStrategy::kTwoSided);
  EXPECT_GE(recorder_.drains, 1100u);
}

TEST_F(MicroWorkload, ServerThreadsShareTheConnections) {
  point_.side = MicroSide::kTwoSided;
  point_.connections = 6;
  point_.window = 2;
  point_.ops = 200'000;
  bool seen = false;
  const auto watch = [](base::Executor& executor,
                        std::vector<std::unique_ptr<MicroServer>>& servers,
                        bool& all) -> base::Task<void> {
    for (int i = 0; i < 10'000 && !all; ++i) {
      co_await executor.sleep_for(10'000);
      all = servers.size() == 3 && servers[0]->clients() == 2 && servers[1]->clients() == 2 &&
            servers[2]->clients() == 2;
    }
  };
  executor_.spawn(watch(executor_, servers_, seen));
  const auto tally = run(3);
  ASSERT_TRUE(tally) << tally.error().message;
  EXPECT_TRUE(seen);
}

TEST_F(MicroWorkload, WhatTheServerHasNotIsRefusedInOneLine) {
  point_.range_bytes = kBytes * 2;
  auto refused = run();
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("smaller --range"), std::string::npos);
  point_.range_bytes = kBytes;
  point_.single_dimm = true;
  refused = run();
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("which DIMM"), std::string::npos);
  point_.single_dimm = false;
  point_.medium = MicroMedium::kNvm;
  options_.nvm.bytes = {};
  refused = run();
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("--pool"), std::string::npos);
}

TEST_F(MicroWorkload, WhatWouldNotBeDurableIsRefused) {
  point_.medium = MicroMedium::kNvm;
  point_.persistent = true;
  options_.nvm.capability.domain = Domain::kMemoryController;
  const auto refused = run();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.code(), ErrorCode::kUnsupported);
  EXPECT_NE(refused.error().message.find("not durable here"), std::string::npos);
}

}  // namespace
}  // namespace pmstore::tools
