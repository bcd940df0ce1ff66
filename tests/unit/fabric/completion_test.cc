// Completions whose waiter is destroyed before its batch ends.
#include "fabric/local/fault_injection.h"
#include "tests/unit/fabric/local_pair.h"

namespace pmstore::fabric {
namespace {

class SlowRequests final : public FaultInjector {
 public:
  FaultDecision on_request(const FaultPoint&) override { return {Fault::kDelay, 5'000}; }
};

class AbandonedCompletion : public LocalPair {
 protected:
  base::Task<Status> execute(const Batch& batch) { co_return co_await connection_->execute(batch); }
  size_t taken() const { return connection_->completions().leased_or_abandoned(); }
  SlowRequests slow_;
  ScopedFaultInjector installed_{slow_};
};

TEST_F(AbandonedCompletion, GoesBackToItsConnectionWhenItsBatchEnds) {
  Batch batch;
  batch.write(client_memory_->at(0, 8), server_memory_->remote(0));
  for (int i = 0; i < 3; ++i) {
    base::Task<Status> task = execute(batch);
    task.start();
    ASSERT_FALSE(task.done());
  }
  EXPECT_EQ(taken(), 3u);
  base::Task<Status> task = execute(batch);
  EXPECT_TRUE(executor_.run(std::move(task)));
  EXPECT_EQ(taken(), 0u);
}

TEST_F(AbandonedCompletion, IsNotReusedWhileItsBatchIsUnderWay) {
  Batch batch;
  batch.write(client_memory_->at(0, 8), server_memory_->remote(0));
  {
    base::Task<Status> task = execute(batch);
    task.start();
  }
  const PendingCompletion other(connection_->completions());
  EXPECT_TRUE(other->idle());
  turns(2);
  executor_.run([](base::Executor& executor) -> base::Task<void> {
    co_await executor.sleep_for(10'000);
  }(executor_));
  EXPECT_TRUE(other->idle()) << "the end of another batch";
}

TEST_F(AbandonedCompletion, MayOutliveItsConnection) {
  Batch batch;
  batch.write(client_memory_->at(0, 8), server_memory_->remote(0));
  base::Task<Status> abandoned = execute(batch);
  abandoned.start();
  base::Task<Status> waits = execute(batch);
  waits.start();
  abandoned = {};
  connection_.reset();
  turns(2);
  EXPECT_FALSE(waits.done());
  waits = {};
}

// Whichever is waited for last.
TEST_F(LocalPair, WaitingForSeveralCompletionsFailsWhenAnyHasFailed) {
  Batch batch;
  batch.write(client_memory_->at(0, 8), server_memory_->remote(0));
  FailNthRequest second(2, FaultSide::kConnector, {Fault::kBreakBefore, 0});
  const ScopedFaultInjector installed(second);
  Completion good;
  Completion bad;
  ASSERT_TRUE(connection_->post(batch, &good));
  ASSERT_TRUE(connection_->post(batch, &bad));
  turns(2);
  ASSERT_TRUE(good.done() && good.ok() && bad.done() && !bad.ok());
  Completion* const good_last[] = {&bad, &good};
  EXPECT_EQ(executor_.run(connection_->wait(good_last)).code(), ErrorCode::kDisconnected);
  Completion* const bad_last[] = {&good, &bad};
  EXPECT_EQ(executor_.run(connection_->wait(bad_last)).code(), ErrorCode::kDisconnected);
}

TEST(CompletionDeathTest, ACompletionBelongsToOneRequestAtATime) {
  Completion completion;
  completion.arm();
  EXPECT_DEATH(completion.arm(), "one request at a time");
}

}  // namespace
}  // namespace pmstore::fabric
