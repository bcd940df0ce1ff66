// Connection::post_when_room(): the wait for room in the send queue, and each way that it ends.
#include <functional>
#include <optional>
#include <string>

#include "fabric/connection.h"
#include "tests/unit/fabric/local_pair.h"

namespace pmstore::fabric {
namespace {

// Its send queue has room when the test says so.
class FullConnection final : public Connection {
 public:
  explicit FullConnection(base::Executor& executor) : Connection(executor) {}
  Status post(const Batch&, Completion* completion) override {
    ++posts;
    if (broken_) return Error(why_broken_);
    if (full) return make_error(ErrorCode::kBackPressure);
    ++counters_.doorbells;
    if (completion != nullptr) completion->arm();
    return {};
  }
  void disconnect() {
    broken_ = true;
    why_broken_ = make_error(ErrorCode::kDisconnected, "the peer is gone");
  }
  bool full = true;
  uint64_t posts = 0;
};

class ConnectionRoom : public testing::Test {
 protected:
  static constexpr uint64_t kTimeoutNs = 10'000;

  base::Task<Status> post() {
    co_return co_await connection_->post_when_room(batch_, &completion_, kTimeoutNs);
  }
  // Runs until `time_ns` has passed, then calls `act`.
  base::Task<void> after(uint64_t time_ns, std::function<void()> act) {
    co_await executor_.sleep_for(time_ns);
    act();
  }
  Status post_and_act(uint64_t time_ns, std::function<void()> act) {
    executor_.spawn(after(time_ns, std::move(act)));
    return executor_.run(post());
  }

  base::VirtualClock clock_;
  base::Executor executor_{clock_};
  std::unique_ptr<FullConnection> connection_ = std::make_unique<FullConnection>(executor_);
  Batch batch_;
  Completion completion_;
};

TEST_F(ConnectionRoom, ABatchThatFitsIsPostedWithoutASuspension) {
  connection_->full = false;
  base::Task<Status> task = post();
  task.start();
  ASSERT_TRUE(task.done());
  EXPECT_TRUE(task.take());
  EXPECT_EQ(connection_->posts, 1u);
  EXPECT_EQ(clock_.now_ns(), 0u) << "no time has passed";
  EXPECT_FALSE(completion_.idle());
}

TEST_F(ConnectionRoom, ABatchThatDoesNotFitIsPostedOnceThereIsRoom) {
  EXPECT_TRUE(post_and_act(3500, [this] { connection_->full = false; }));
  EXPECT_EQ(clock_.now_ns(), 4 * Connection::kRoomPollNs);
  EXPECT_EQ(connection_->posts, 5u) << "the first try, then one per poll";
  EXPECT_EQ(connection_->counters().doorbells, 1u);
}

TEST_F(ConnectionRoom, AQueueThatStaysFullIsATimeoutAndNothingIsPosted) {
  const Status posted = executor_.run(post());
  EXPECT_EQ(posted.code(), ErrorCode::kTimeout);
  EXPECT_NE(posted.error().message.find("send queue stayed full"), std::string::npos);
  EXPECT_EQ(clock_.now_ns(), kTimeoutNs);
  EXPECT_EQ(connection_->counters().doorbells, 0u);
  EXPECT_TRUE(completion_.idle());
}

TEST_F(ConnectionRoom, ADisconnectDuringTheWaitEndsItWithTheConnectionsError) {
  const Status posted = post_and_act(2500, [this] { connection_->disconnect(); });
  EXPECT_EQ(posted.code(), ErrorCode::kDisconnected);
  EXPECT_EQ(posted.error().message, "the peer is gone");
  EXPECT_EQ(clock_.now_ns(), 3000u);
}

TEST_F(ConnectionRoom, AConnectionThatIsDestroyedDuringTheWaitIsNotUsedAgain) {
  int tries = 0;
  const auto try_post = [&]() -> Status {
    ++tries;
    return make_error(ErrorCode::kBackPressure);
  };
  const auto wait = [&]() -> base::Task<Status> {
    co_return co_await connection_->post_when_room(kTimeoutNs, try_post);
  };
  executor_.spawn(after(2500, [this] { connection_.reset(); }));
  EXPECT_EQ(executor_.run(wait()).code(), ErrorCode::kDisconnected);
  EXPECT_EQ(clock_.now_ns(), 3000u);
  EXPECT_EQ(tries, 3);
}

TEST_F(ConnectionRoom, AnAbandonedWaitPostsNothing) {
  std::optional<base::Task<Status>> task(post());
  task->start();
  ASSERT_FALSE(task->done());
  EXPECT_EQ(connection_->posts, 1u);
  task.reset();
  connection_->full = false;
  executor_.run(after(5000, [] {}));
  EXPECT_EQ(connection_->posts, 1u);
}

// A caller that chooses what it posts at each try, and can end the wait with an error of its own.
TEST_F(ConnectionRoom, EachTryIsMadeAnew) {
  int tries = 0;
  const auto try_post = [&]() -> Status {
    return ++tries < 3 ? connection_->post(batch_, nullptr)
                       : Status(make_error(ErrorCode::kSealed, "too late"));
  };
  const auto wait = [&]() -> base::Task<Status> {
    co_return co_await connection_->post_when_room(kTimeoutNs, try_post);
  };
  EXPECT_EQ(executor_.run(wait()).code(), ErrorCode::kSealed);
  EXPECT_EQ(tries, 3);
  EXPECT_EQ(connection_->posts, 2u);
}

// The same on a real connection: its peer makes room.
TEST_F(LocalPair, AFullImmediateRingHasRoomOnceThePeerPolls) {
  Batch one;
  one.write_immediate(client_memory_->at(0, 8), server_memory_->remote(0), 5);
  uint64_t posted = 0;
  while (connection_->post(one, nullptr)) ++posted;
  const auto wait = [&]() -> base::Task<Status> {
    co_return co_await connection_->post_when_room(one, nullptr, 1'000'000);
  };
  EXPECT_TRUE(executor_.run(wait()));
  turns(2);
  EXPECT_EQ(server_receiver_.immediates.size(), posted + 1);
}

}  // namespace
}  // namespace pmstore::fabric
