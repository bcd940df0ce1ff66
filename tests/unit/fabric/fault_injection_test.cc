#include "fabric/local/fault_injection.h"

#include "tests/unit/fabric/local_pair.h"

namespace pmstore::fabric {
namespace {

class FaultInjection : public LocalPair {
 protected:
  // Three WRITEs to three words; how many took effect.
  int writes_that_landed() {
    for (size_t i = 0; i < 3; ++i) client_memory_->set_word(i * 8, i + 1);
    Batch batch;
    for (size_t i = 0; i < 3; ++i) {
      batch.write(client_memory_->at(i * 8, 8), server_memory_->remote(i * 8));
    }
    posted_ = connection_->post(batch, &completion_).has_value();
    int landed = 0;
    for (size_t i = 0; i < 3; ++i) landed += server_memory_->word(i * 8) == i + 1;
    return landed;
  }
  Completion completion_;
  bool posted_ = false;
};

TEST_F(FaultInjection, TheNthRequestBreaksTheConnectionBeforeItsEffect) {
  FailNthRequest fail(2, FaultSide::kConnector, {Fault::kBreakBefore, 0});
  ScopedFaultInjector installed(fail);
  EXPECT_EQ(writes_that_landed(), 1);
  EXPECT_TRUE(fail.fired());
  EXPECT_TRUE(completion_.done());
  EXPECT_FALSE(completion_.ok());
  turns(2);
  EXPECT_EQ(client_receiver_.disconnects.size(), 1u);
  EXPECT_EQ(server_receiver_.disconnects.size(), 1u);
}

TEST_F(FaultInjection, OrAfterItsEffectSoThatThePosterCannotKnow) {
  FailNthRequest fail(2, FaultSide::kConnector, {Fault::kBreakAfter, 0});
  ScopedFaultInjector installed(fail);
  EXPECT_EQ(writes_that_landed(), 2);
  EXPECT_FALSE(completion_.ok());
}

TEST_F(FaultInjection, CountsOnlyTheChosenSide) {
  FailNthRequest fail(1, FaultSide::kListener, {Fault::kBreakBefore, 0});
  ScopedFaultInjector installed(fail);
  EXPECT_EQ(writes_that_landed(), 3);
  EXPECT_EQ(fail.seen(), 0u);
  Batch batch;
  batch.write(server_memory_->at(0, 8), client_memory_->remote(512));
  ASSERT_TRUE(acceptor_.connections[0]->post(batch, nullptr));
  EXPECT_TRUE(fail.fired());
  EXPECT_TRUE(acceptor_.connections[0]->broken());
}

TEST_F(FaultInjection, ADelayedCompletionComesByPollingWhenItIsDue) {
  FailNthRequest fail(1, FaultSide::kConnector, {Fault::kDelay, 5'000});
  ScopedFaultInjector installed(fail);
  const uint64_t before = clock_.now_ns();
  EXPECT_EQ(writes_that_landed(), 3) << "only the completion is late";
  EXPECT_FALSE(completion_.done());
  Batch batch;  // what is posted behind it completes behind it
  batch.read(client_memory_->at(64, 8), server_memory_->remote(0));
  auto wait = [](Connection& connection, const Batch& of) -> base::Task<Status> {
    co_return co_await connection.execute(of);
  };
  EXPECT_TRUE(executor_.run(wait(*connection_, batch)));
  EXPECT_TRUE(completion_.ok());
  EXPECT_GE(clock_.now_ns() - before, 5'000u);
  EXPECT_LT(clock_.now_ns() - before, 50'000u);
}

TEST_F(FaultInjection, ADelayBeyondTheOperationTimeoutBreaksTheConnection) {
  FailNthRequest fail(1, FaultSide::kConnector, {Fault::kDelay, UINT64_MAX / 2});
  ScopedFaultInjector installed(fail);
  Batch batch;
  batch.read(client_memory_->at(64, 8), server_memory_->remote(0));
  auto wait = [](Connection& connection, const Batch& of) -> base::Task<Status> {
    co_return co_await connection.execute(of);
  };
  Status status = executor_.run(wait(*connection_, batch));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.code(), ErrorCode::kTimeout);
  EXPECT_GE(clock_.now_ns(), ConnectOptions{}.operation_timeout_ns);
  turns(2);
  EXPECT_EQ(client_receiver_.disconnects.size(), 1u);
}

TEST_F(FaultInjection, EveryNumberedPointIsReachedOnce) {
  for (uint64_t n = 1; n <= 4; ++n) {
    connection_ = connect();
    ASSERT_NE(connection_, nullptr);
    std::memset(server_memory_->bytes.data(), 0, 64);
    FailNthRequest fail(n, FaultSide::kBoth, {Fault::kBreakBefore, 0});
    ScopedFaultInjector installed(fail);
    EXPECT_EQ(writes_that_landed(), static_cast<int>(n) - 1);
    EXPECT_EQ(fail.fired(), n <= 3);
    if (n <= 3) {
      EXPECT_TRUE(connection_->broken());
    }
  }
}

}  // namespace
}  // namespace pmstore::fabric
