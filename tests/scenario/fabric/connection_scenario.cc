// Handshakes, and how connections end.
#include "tests/scenario/fabric/fabric_scenario.h"

namespace pmstore::scenario {
namespace {

using fabric::Batch;

class ConnectionScenario : public FabricScenario {};

TEST_F(ConnectionScenario, HellosTravelBothWays) {
  auto link = connect_raw();  // the target refuses a hello that it cannot read
  ASSERT_NE(link, nullptr);
  EXPECT_EQ(link->hello.shared.bytes, kSharedBytes);
  EXPECT_EQ(link->hello.read_only.bytes, kOtherBytes);
  EXPECT_NE(link->hello.shared.key, link->hello.read_only.key);
  EXPECT_FALSE(link->connection->broken());
}

TEST_F(ConnectionScenario, ARefusalArrivesWithTheListenersWords) {
  auto connection = connect(ConnectionKind::kRefuseMe, {});
  ASSERT_FALSE(connection);
  EXPECT_EQ(connection.code(), ErrorCode::kVersionMismatch);
  EXPECT_NE(connection.error().message.find(kRefusal), std::string::npos)
      << connection.error().to_string();
  expect_unharmed();
}

TEST_F(ConnectionScenario, ConnectingToNobodyFailsWithinTheTimeout) {
  fabric::Uri nobody = target_->uri();
  if (nobody.port != 0) {
    // The target's own port, which nobody serves any more once it has ended.
    control_.reset();
    EXPECT_TRUE(target_->stop());
  } else {
    nobody.name += "-nobody";
  }
  fabric::ConnectOptions options;
  options.timeout_ns = short_timeout_ns();
  const uint64_t before = clock_.now_ns();
  auto connection = executor_.run(device_->connect(nobody, options));
  ASSERT_FALSE(connection);
  EXPECT_TRUE(connection.code() == ErrorCode::kDisconnected ||
              connection.code() == ErrorCode::kTimeout)
      << connection.error().to_string();
  EXPECT_LE(clock_.now_ns() - before, with_patience(short_timeout_ns()));
}

TEST_F(ConnectionScenario, TheTargetIsToldWhenAConnectionIsDestroyed) {
  operation_timeout_ns_ = short_timeout_ns();
  auto link = connect_raw();
  ASSERT_NE(link, nullptr);
  const uint64_t id = link->hello.connection_id;
  EXPECT_EQ(raw_state(id).disconnected, 0u);
  link.reset();
  EXPECT_TRUE(run_until([&] { return raw_state(id).disconnected == 1; },
                        with_patience(4 * short_timeout_ns())));
  EXPECT_EQ(live().raw, 0u);
}

TEST_F(ConnectionScenario, ThisSideIsToldWhenTheTargetDestroysAConnection) {
  operation_timeout_ns_ = short_timeout_ns();
  auto link = connect_raw();
  ASSERT_NE(link, nullptr);
  ASSERT_TRUE(call_with(kDestroyRaw, link->hello.connection_id));
  // Where a provider notices only by trying, this is the trying.
  auto noticed = [&] {
    Batch batch;
    batch.read(local(0, 8), link->hello.shared.at(0));
    if (!link->connection->broken()) (void)execute(*link->connection, batch);
    return link->disconnected.has_value();
  };
  EXPECT_TRUE(run_until(noticed, with_patience(4 * short_timeout_ns())));
  EXPECT_TRUE(link->connection->broken());
  Batch batch;
  batch.read(local(0, 8), link->hello.shared.at(0));
  Status posted = link->connection->post(batch, nullptr);
  ASSERT_FALSE(posted);
  EXPECT_EQ(posted.code(), ErrorCode::kDisconnected);
}

TEST_F(ConnectionScenario, NothingLandsAfterTheTargetHasDestroyedAConnection) {
  operation_timeout_ns_ = short_timeout_ns();
  auto link = connect_raw();
  ASSERT_NE(link, nullptr);
  // One writer that never waits for long, changing the same 64 KiB with every batch.
  constexpr size_t kBytes = 64 << 10;
  bool stop = false;
  uint64_t batches = 0;
  auto writer = [](FabricScenario*, RawLink& to, fabric::LocalBuffer from, bool& stop_now,
                   uint64_t& count, base::Executor& executor) -> base::Task<void> {
    while (!stop_now && !to.connection->broken()) {
      std::memset(from.data, static_cast<int>(++count & 0xff), from.bytes);
      Batch batch;
      batch.write(from, to.hello.shared.at(0));
      Status done = co_await to.connection->execute(batch);
      if (!done) break;
      co_await executor.yield();
    }
  };
  executor_.spawn(writer(this, *link, local(0, kBytes), stop, batches, executor_));
  ASSERT_TRUE(run_until([&] { return batches > 20; }, kPatientTimeoutNs));
  auto fenced = call_with(kDestroyRaw, link->hello.connection_id);
  ASSERT_TRUE(fenced);
  uint64_t at_fence = 0;
  std::memcpy(&at_fence, fenced->data(), sizeof(at_fence));
  for (int look = 0; look < 20; ++look) {
    EXPECT_EQ(target_checksum(0, 0, kSharedBytes), at_fence) << "a WRITE landed after the fence";
    run_until([] { return false; }, 2'000'000);
  }
  stop = true;
  EXPECT_TRUE(run_until([&] { return executor_.spawned() == 0 || link->connection->broken(); },
                        with_patience(4 * short_timeout_ns())));
  link.reset();
}

TEST_F(ConnectionScenario, AKilledTargetFailsWhatIsOutstandingWithinTheTimeout) {
  operation_timeout_ns_ = short_timeout_ns();
  auto link = connect_raw();
  ASSERT_NE(link, nullptr);
  target_->kill();
  const uint64_t before = clock_.now_ns();
  auto noticed = [&] {
    Batch batch;
    batch.read(local(0, 8), link->hello.shared.at(0));
    if (!link->connection->broken()) (void)execute(*link->connection, batch);
    return link->disconnected.has_value();
  };
  EXPECT_TRUE(run_until(noticed, with_patience(4 * short_timeout_ns())));
  EXPECT_LT(clock_.now_ns() - before, with_patience(4 * short_timeout_ns()));
  EXPECT_TRUE(link->connection->broken());
  control_.reset();
}

TEST_F(ConnectionScenario, AHundredConnectionsComeAndGo) {
  for (int round = 0; round < 4; ++round) {
    std::vector<std::unique_ptr<RawLink>> links;
    for (int i = 0; i < 25; ++i) {
      links.push_back(connect_raw());
      ASSERT_NE(links.back(), nullptr);
    }
    EXPECT_EQ(live().raw, 25u);
    links.clear();
    ASSERT_TRUE(run_until([&] { return live().raw == 0; }, kPatientTimeoutNs));
  }
}

}  // namespace
}  // namespace pmstore::scenario
