// A server or a connection of a replicated log is lost at every request of every step, and what
// replicas have is compared after it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "fabric/local/fault_injection.h"
#include "tests/unit/log/replicated_log_fixture.h"

namespace pmstore::log {
namespace {

using fabric::Fault;

class SlowReads final : public fabric::FaultInjector {
 public:
  fabric::FaultDecision on_request(const fabric::FaultPoint& point) override {
    if (!point.connector || point.request.op != fabric::OpCode::kRead) return {};
    return {Fault::kDelay, 100'000};
  }
};

// Breaks the connection at the n-th request, and tells.
class Breaks final : public fabric::FaultInjector {
 public:
  Breaks(uint64_t n, Fault fault) : n_(n), fault_(fault) {}
  fabric::FaultDecision on_request(const fabric::FaultPoint&) override {
    return {++seen_ == n_ ? fault_ : Fault::kNone, 0};
  }
  bool fired() const { return seen_ >= n_; }

 private:
  uint64_t n_;
  Fault fault_;
  uint64_t seen_ = 0;
};

struct Work {
  std::optional<Error> failed;
  uint64_t acknowledged = 0;  // entries
  bool done = false;
};

Task<void> append_concurrently(ReplicatedLog& log, uint64_t first, uint64_t count, Work& work,
                               int& left) {
  std::vector<std::string> texts;
  for (uint64_t i = 0; i < count; ++i)
    texts.push_back(text_of(first + i, 20 + (first + i) * 37 % 300));
  std::vector<std::span<const std::byte>> payloads;
  for (const std::string& each : texts) payloads.push_back(std::as_bytes(std::span(each)));
  const auto appended = co_await log.append_batch(payloads);
  if (appended) work.acknowledged = std::max(work.acknowledged, appended->index);
  if (!appended) work.failed = appended.error();
  --left;
}

// Takes the log over and appends, two at a time.
Task<void> take_and_append(base::Executor& executor, std::vector<std::string> servers,
                           ReplicatedLogOptions options, Work& work) {
  auto log = co_await ReplicatedLog::open(executor, "log", servers, options);
  if (!log) {
    work.failed = log.error();
    work.done = true;
    co_return;
  }
  for (int round = 0; round < 2 && !work.failed; ++round) {
    int left = 2;
    const uint64_t next = (*log)->next_index();
    auto one = append_concurrently(**log, next, 2, work, left);
    auto two = append_concurrently(**log, next + 2, 1, work, left);
    one.start();
    two.start();
    while (left > 0) co_await executor.sleep_for(100);
  }
  if (!work.failed) (void)co_await (*log)->close();
  work.done = true;
}

Task<void> kill_when_fired(base::Executor& executor, const Breaks& breaks, Work& work,
                           Server* server) {
  while (!work.done) {
    if (breaks.fired() && server != nullptr && server->up()) server->kill();
    co_await executor.sleep_for(50);
  }
}

class ReplicatedLogFaults : public ReplicatedLogTest {
 protected:
  // Works with a fault at request n; false when there are fewer requests.
  bool work_with_fault(uint64_t n, Fault fault, Server* dies, const ReplicatedLogOptions& options) {
    Breaks breaks(n, fault);
    Work work;
    {
      fabric::ScopedFaultInjector installed(breaks);
      auto killer = kill_when_fired(executor_, breaks, work, dies);
      killer.start();
      run(take_and_append(executor_, uris(), options, work));
      run(sleep(executor_, 1000));
    }
    acknowledged_ = std::max(acknowledged_, work.acknowledged);
    return breaks.fired();
  }
  // Whatever has happened: all replicas have one prefix, with everything that was acknowledged.
  void expect_agreement(const std::vector<size_t>& which, const ReplicatedLogOptions& options,
                        const std::string& when) {
    SCOPED_TRACE(when);
    ASSERT_TRUE(open({which.front()}, options));
    EXPECT_GT(log_->next_index(), acknowledged_);
    expect_equal(which);
    log_.reset();
  }
  void new_log() {
    run(sleep(executor_, 1'000'000'000));  // leases end
    for (auto& server : servers_) {
      server->start();
      const auto there = server->store().find("log");
      EXPECT_TRUE(!there || server->store().erase(there->id));
    }
    acknowledged_ = 0;
    ASSERT_TRUE(create());
  }

  uint64_t acknowledged_ = 0;
};

TEST_P(ReplicatedLogFaults, ALostConnectionAtAnyRequestLeavesOnePrefix) {
  for (const Fault fault : {Fault::kBreakBefore, Fault::kBreakAfter}) {
    bool fired = true;
    uint64_t n = 1;
    for (; fired && !HasFailure(); ++n) {
      new_log();
      fired = work_with_fault(n, fault, nullptr, stealing());
      // A producer that nobody has told is fenced by the next one.
      expect_agreement({0, 1, 2}, stealing(), fmt::format("request {}", n));
    }
    EXPECT_GT(n, 20u);
  }
}

TEST_P(ReplicatedLogFaults, AServerThatDiesAtAnyRequestComesBackOrIsDropped) {
  for (size_t victim = 0; victim < kServers; ++victim) {
    bool fired = true;
    for (uint64_t n = 1; fired && !HasFailure(); ++n) {
      new_log();
      fired = work_with_fault(n, Fault::kBreakAfter, servers_[victim].get(), stealing());
      const std::string when = fmt::format("server {} at request {}", victim, n);
      if (n % 2 == 0 || !fired) {
        servers_[victim]->start();
        expect_agreement({0, 1, 2}, stealing(), when);
        continue;
      }
      std::vector<size_t> others = {0, 1, 2};
      others.erase(others.begin() + static_cast<ptrdiff_t>(victim));
      expect_agreement(others, dropping({victim}), when);
      servers_[victim]->start();
      acknowledged_ = 0;
      ASSERT_TRUE(open({victim}, stealing())) << when;
      EXPECT_EQ(log_->replicas(), uris(others)) << when;
      log_.reset();
    }
  }
}

TEST_P(ReplicatedLogFaults, WhatOneReplicaRefusesIsNotReplacedByWhatComesLater) {
  new_log();
  ASSERT_TRUE(open());
  while (append(6)) continue;
  const uint64_t first = log_->next_index();
  run(sleep(executor_, 1'000'000));
  for (const size_t roomy : {0, 1}) {
    LogStore& store = servers_[roomy]->store();
    ASSERT_TRUE(store.trim_below_index(store.find("log")->id, first / 2));
  }
  Work work;
  int left = 2;
  auto six = append_concurrently(*log_, first, 6, work, left);
  auto one = append_concurrently(*log_, first + 6, 1, work, left);
  six.start();
  one.start();
  while (left > 0) run(sleep(executor_, 1000));
  EXPECT_TRUE(work.failed);
  log_.reset();
  LogStore& full = servers_[2]->store();
  run(sleep(executor_, 1'000'000'000));
  ASSERT_TRUE(full.trim_below_index(full.find("log")->id, first / 2));
  ASSERT_TRUE(open({0}, stealing()));
  run(sleep(executor_, 1'000'000));
  EXPECT_EQ(entries(2), entries(0));
  EXPECT_EQ(entries(1), entries(0));
}

TEST_P(ReplicatedLogFaults, ADropThatIsInterruptedIsFinishedOrNeverWas) {
  for (const Fault fault : {Fault::kBreakBefore, Fault::kBreakAfter}) {
    bool fired = true;
    for (uint64_t n = 1; fired && !HasFailure(); ++n) {
      new_log();
      work_with_fault(UINT64_MAX, Fault::kNone, nullptr, stealing());
      servers_[1]->kill();
      fired = work_with_fault(n, fault, nullptr, dropping({1}));
      servers_[1]->start();
      SCOPED_TRACE(fmt::format("request {}", n));
      ASSERT_TRUE(open({1}, stealing()));
      EXPECT_GT(log_->next_index(), acknowledged_);
      const bool dropped = log_->membership() == 2;
      expect_equal(dropped ? std::vector<size_t>{0, 2} : std::vector<size_t>{0, 1, 2});
      log_.reset();
    }
  }
}

TEST_P(ReplicatedLogFaults, AFullLogPushesBackAllThatAreUnderWay) {
  ASSERT_TRUE(create());
  ASSERT_TRUE(open());
  Result<Appended> last = append(3);
  while (last) last = append(3);
  const uint64_t next = log_->next_index();
  const auto two_at_once = [&] {
    std::array<std::optional<Result<Appended>>, 2> results;
    executor_.spawn(append_into(results[0], *log_, next, 3));
    executor_.spawn(append_into(results[1], *log_, next + 3, 1));
    while (!results[0] || !results[1]) run(sleep(executor_, 1000));
    return std::array{std::move(*results[0]), std::move(*results[1])};
  };
  {
    SlowReads slow;  // a producer without room looks where the log begins
    const fabric::ScopedFaultInjector installed(slow);
    for (const Result<Appended>& refused : two_at_once()) {
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.code(), ErrorCode::kBackPressure) << refused.error().to_string();
    }
  }
  EXPECT_EQ(log_->next_index(), next) << "no index was used up";
  ASSERT_TRUE(run(log_->trim_below_index(next / 2)));
  for (const Result<Appended>& done : two_at_once()) EXPECT_TRUE(done);
  EXPECT_EQ(log_->next_index(), next + 4);
  ASSERT_TRUE(run(log_->close()));
  const auto found = entries(0);
  for (size_t i = 0; i < found.size(); ++i) {
    const uint64_t index = next + 4 - found.size() + i;
    EXPECT_EQ(found[i], (TestEntry{index, text(index)}));
  }
  EXPECT_EQ(entries(1), found);
  EXPECT_EQ(entries(2), found);
}

TEST_P(ReplicatedLogFaults, NobodyWaitsForAnAppendWhoseCoroutineIsDestroyed) {
  ASSERT_TRUE(create());
  ASSERT_TRUE(open());
  while (append(4)) {
  }
  {
    SlowReads slow;
    const fabric::ScopedFaultInjector installed(slow);
    auto abandoned = append_task(*log_, log_->next_index(), 4);
    abandoned.start();
    run(sleep(executor_, 100'000));
    // Every replica has refused it; the append itself has not run yet.
    ASSERT_FALSE(abandoned.done());
  }
  for (int i = 0; i < 2; ++i) {
    std::optional<Result<Appended>> next;
    auto after = append_into(next, *log_, log_->next_index(), 4);
    after.start();
    run(sleep(executor_, kSoonNs));
    ASSERT_TRUE(next) << "it waits for ever";
    EXPECT_FALSE(*next);
  }
  ASSERT_TRUE(open());
  ASSERT_TRUE(run(log_->trim_below_index(5)));
  EXPECT_TRUE(append());
}

INSTANTIATE_TEST_SUITE_P(Domain, ReplicatedLogFaults,
                         testing::Values(persist::Domain::kCpuCache,
                                         persist::Domain::kMemoryController),
                         domain_of);

}  // namespace
}  // namespace pmstore::log
