// Appends of a producer whose coroutine is destroyed at each moment.
#include "fabric/local/fault_injection.h"
#include "log/log_client.h"
#include "log/log_producer.h"
#include "log/log_reader.h"
#include "tests/unit/log/log_service_fixture.h"

namespace pmstore::log {
namespace {

// Each completion and reply comes late, so that each suspension is seen.
class SlowRequests final : public fabric::FaultInjector {
 public:
  fabric::FaultDecision on_request(const fabric::FaultPoint& point) override {
    if (!point.connector || point.request.op == fabric::OpCode::kWriteImmediate) return {};
    return {fabric::Fault::kDelay, 20'000};
  }
};

class AbandonedAppend : public LogServiceTest,
                        public ::testing::WithParamInterface<persist::WriteStrategy> {
 protected:
  AbandonedAppend() : LogServiceTest(persist::Domain::kCpuCache) {}
  void SetUp() override {
    LogServiceTest::SetUp();
    client_ = std::move(*run(LogClient::connect(executor_, uri_, {})));
    LogOptions options;
    options.bytes = 64 << 10;
    options.when_full = FullPolicy::kTrimOldest;
    log_ = run(client_->create("l", options))->id;
  }
  void TearDown() override { client_.reset(); }
  std::unique_ptr<LogProducer> open_producer() {
    LogProducerOptions options;
    options.strategy = GetParam();
    auto opened = run(LogProducer::open(*client_, log_, options));
    if (!opened && opened.code() == ErrorCode::kBusy) {
      let_time_pass(1);  // the server takes the last one's lease back
      opened = run(LogProducer::open(*client_, log_, options));
    }
    EXPECT_TRUE(opened) << opened.error().to_string();
    return opened ? std::move(*opened) : nullptr;
  }
  void let_pass(uint64_t ns) {
    run([](base::Executor& executor, uint64_t for_ns) -> Task<void> {
      co_await executor.sleep_for(for_ns);
    }(executor_, ns));
  }
  // Destroys an append after so many steps of 5 us; false when it was done before.
  bool abandon(int steps, bool producer_goes_first) {
    auto producer = open_producer();
    if (producer == nullptr) return false;
    const std::string payload(3000, 'p');
    const auto bytes = std::as_bytes(std::span(payload));
    bool abandoned = false;
    SlowRequests slow;
    const fabric::ScopedFaultInjector installed(slow);
    {
      auto append = producer->append(bytes);
      append.start();
      for (int step = 0; step < steps && !append.done(); ++step) let_pass(5'000);
      abandoned = !append.done();
    }
    if (producer_goes_first) {
      producer.reset();
      let_time_pass(1);
      return abandoned;
    }
    let_time_pass(1);
    // It cannot know what it has appended, and says so at each further append.
    const auto next = run(producer->append(bytes));
    EXPECT_EQ(next.has_value(), !abandoned);
    static_cast<void>(run(producer->close()));
    return abandoned;
  }
  void abandon_everywhere(bool producer_goes_first) {
    int steps = 0;
    while (abandon(steps, producer_goes_first) && !HasFailure()) ++steps;
    EXPECT_GE(steps, 1);
    auto producer = open_producer();
    const std::string payload = "after all";
    ASSERT_TRUE(run(producer->append(std::as_bytes(std::span(payload)))));
    ASSERT_TRUE(run(producer->close()));
    EXPECT_TRUE(run(client_->open("l"))->damaged.empty());
    auto reader = std::move(*run(LogReader::open(*client_, log_, {})));
    uint64_t last = 0;
    while (true) {
      const auto entry = run(reader->next());
      if (!entry) {
        EXPECT_EQ(entry.code(), ErrorCode::kNotFound) << entry.error().to_string();
        break;
      }
      EXPECT_TRUE(last == 0 || entry->index == last + 1);
      last = entry->index;
    }
  }

  std::unique_ptr<LogClient> client_;
  uint64_t log_ = 0;
};
INSTANTIATE_TEST_SUITE_P(
    Strategies, AbandonedAppend,
    ::testing::Values(persist::WriteStrategy::kDoorbell, persist::WriteStrategy::kNaive,
                      persist::WriteStrategy::kOutstanding, persist::WriteStrategy::kTwoSided),
    [](const auto& param) { return std::string(persist::strategy_name(param.param)); });

TEST_P(AbandonedAppend, LeavesNothingThatItsCompletionCouldReach) { abandon_everywhere(false); }

TEST_P(AbandonedAppend, WhoseProducerGoesRightAfter) { abandon_everywhere(true); }

TEST_P(AbandonedAppend, ProducerThatClosesWaitsForWhatIsUnderWay) {
  auto producer = open_producer();
  const std::string payload(3000, 'p');
  SlowRequests slow;
  const fabric::ScopedFaultInjector installed(slow);
  auto append = producer->append(std::as_bytes(std::span(payload)));
  append.start();
  static_cast<void>(run(producer->close()));
  ASSERT_TRUE(append.done()) << "it waits for ever";
  EXPECT_TRUE(append.take());
}

TEST_P(AbandonedAppend, ProducerThatClosesDoesNotWaitForAppendsThatBeginLater) {
  auto producer = open_producer();
  const std::string payload(100, 'p');
  SlowRequests slow;
  const fabric::ScopedFaultInjector installed(slow);
  const auto append_on = [](LogProducer& at, std::span<const std::byte> bytes) -> Task<void> {
    while (co_await at.append(bytes)) {
    }
  };
  // One of the two is always under way.
  auto one = append_on(*producer, std::as_bytes(std::span(payload)));
  auto two = append_on(*producer, std::as_bytes(std::span(payload)));
  one.start();
  let_pass(7'000);
  two.start();
  let_pass(100'000);
  auto close = producer->close();
  close.start();
  let_pass(3'000'000'000);
  EXPECT_TRUE(close.done());
  EXPECT_TRUE(one.done());
  EXPECT_TRUE(two.done());
}

TEST_P(AbandonedAppend, ProducerThatClosesWaitsForAPublishOfSomebodyElse) {
  auto producer = open_producer();
  const std::string payload(100, 'p');
  ASSERT_TRUE(run(producer->append(std::as_bytes(std::span(payload)))));
  SlowRequests slow;
  const fabric::ScopedFaultInjector installed(slow);
  auto publish = producer->publish();
  publish.start();
  auto close = producer->close();
  close.start();
  EXPECT_EQ(run(producer->close()).code(), ErrorCode::kBusy);
  EXPECT_EQ(run(producer->agree(1)).code(), ErrorCode::kDisconnected);
  let_pass(3'000'000'000);
  ASSERT_TRUE(publish.done());
  EXPECT_TRUE(publish.take());
  ASSERT_TRUE(close.done());
  EXPECT_TRUE(close.take());
}

// Nobody would tell it that its connection is gone.
TEST_P(AbandonedAppend, ProducerThatClosesWaitsForACallOfSomebodyElse) {
  auto producer = open_producer();
  auto agree = producer->agree(1);
  agree.start();
  ASSERT_FALSE(agree.done());
  auto close = producer->close();
  close.start();
  let_pass(3'000'000'000);
  ASSERT_TRUE(agree.done());
  const Status agreed = agree.take();
  EXPECT_TRUE(agreed) << agreed.error().to_string();
  ASSERT_TRUE(close.done());
  EXPECT_TRUE(close.take());
}

TEST_P(AbandonedAppend, ProducerThatIsClosedRefusesEveryCall) {
  auto producer = open_producer();
  ASSERT_TRUE(run(producer->close()));
  const std::string payload(100, 'p');
  EXPECT_EQ(run(producer->append(std::as_bytes(std::span(payload)))).code(),
            ErrorCode::kDisconnected);
  EXPECT_EQ(run(producer->publish()).code(), ErrorCode::kDisconnected);
  EXPECT_EQ(run(producer->agree(1)).code(), ErrorCode::kDisconnected);
  EXPECT_EQ(run(producer->set_membership(1, ReplicaPlace{{"local:somewhere"}, 0, 2})).code(),
            ErrorCode::kDisconnected);
  const auto lease = run(producer->holds_lease());
  ASSERT_TRUE(lease) << lease.error().to_string();
  EXPECT_FALSE(*lease);
}

}  // namespace
}  // namespace pmstore::log
