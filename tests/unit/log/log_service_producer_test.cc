// LogService: exclusive producers, leases, fencing.
#include <functional>
#include <optional>

#include "persist/remote_writer.h"
#include "tests/unit/log/log_service_fixture.h"

namespace pmstore::log {
namespace {

TEST_F(LogServiceTest, OneProducerAtATime) {
  auto client = session();
  const uint64_t log = create(*client, "a");
  EXPECT_EQ(producer(7, 99).code(), ErrorCode::kNotFound);
  auto first = producer(7, log);
  ASSERT_TRUE(first) << first.error().to_string();
  EXPECT_TRUE(open(*client, "a").exclusive);
  EXPECT_EQ(append(*client, log, {"x"}).code(), ErrorCode::kBusy);
  EXPECT_EQ(call(*client, LogMethod::kSeal, as_bytes(LogRequest{log})).code(), ErrorCode::kBusy);
  EXPECT_EQ(call(*client, LogMethod::kDelete, as_bytes(LogRequest{log})).code(), ErrorCode::kBusy);
  EXPECT_EQ(producer(8, log).code(), ErrorCode::kBusy);
  EXPECT_FALSE(broken(**first));
  first->reset();  // gives the lease back
  let_time_pass(1);
  EXPECT_FALSE(open(*client, "a").exclusive);
  EXPECT_TRUE(append(*client, log, {"x"}));
  EXPECT_TRUE(producer(8, log));
  EXPECT_EQ(counters().fenced, 0u);
}

TEST_F(LogServiceTest, StealingFencesTheOneBefore) {
  auto client = session();
  const uint64_t log = create(*client, "a");
  auto first = producer(7, log);
  ASSERT_TRUE(first);
  auto second = producer(8, log, Takeover::kSteal);
  ASSERT_TRUE(second);
  EXPECT_GT((*second)->producer.incarnation, (*first)->producer.incarnation);
  EXPECT_EQ(open(*client, "a").incarnation, (*second)->producer.incarnation);
  EXPECT_TRUE(broken(**first));
  EXPECT_EQ(counters().fenced, 1u);
  // What the loser still posts does not land.
  std::vector<std::byte> bytes(64, std::byte{0xee});
  auto region = device_->register_memory(bytes, fabric::Access::kLocal);
  ASSERT_TRUE(region);
  fabric::Batch batch;
  batch.write({bytes.data(), 64, region->get()}, (*first)->producer.data.at(0));
  EXPECT_FALSE((*first)->connection->post(batch, nullptr));
  EXPECT_NE(*pool_.data_of_store(host_->store(), log, 0), std::byte{0xee});
}

// Does something at the server at each step towards durability.
class AtEachDrain final : public persist::Observer {
 public:
  explicit AtEachDrain(std::function<void()> action) : action_(std::move(action)) {}
  void on_store(const void*, const void*, size_t, bool) override {}
  void on_flush(const void*, size_t) override {}
  void on_drain() override { action_(); }

 private:
  const std::function<void()> action_;
};

// What landed behind the walk that finds the tail would lie in what the next one is granted.
TEST_F(LogServiceTest, StealingFencesTheOneBeforeAheadOfTheWalk) {
  auto client = session();
  const uint64_t log = create(*client, "a");
  auto first = producer(7, log);
  ASSERT_TRUE(first);
  std::vector<std::byte> bytes(64, std::byte{0xee});
  auto region = device_->register_memory(bytes, fabric::Access::kLocal);
  ASSERT_TRUE(region);
  fabric::Batch batch;
  batch.write({bytes.data(), 64, region->get()}, (*first)->producer.data.at(0));
  int writes = 0;
  AtEachDrain loser([&] {
    ++writes;
    static_cast<void>((*first)->connection->post(batch, nullptr));
  });
  persist::Memory& memory = pool_.pool().memory();
  memory.set_observer(&loser);
  const auto second = producer(8, log, Takeover::kSteal);
  memory.set_observer(nullptr);
  ASSERT_TRUE(second) << second.error().to_string();
  ASSERT_GT(writes, 0);
  EXPECT_NE(*pool_.data_of_store(host_->store(), log, 0), std::byte{0xee});
}

TEST_F(LogServiceTest, ProducerThatComesBackTakesItselfOver) {
  auto client = session();
  const uint64_t log = create(*client, "a");
  auto first = producer(7, log);
  ASSERT_TRUE(first);
  auto again = producer(7, log);
  ASSERT_TRUE(again) << again.error().to_string();
  EXPECT_TRUE(broken(**first));
  EXPECT_FALSE(broken(**again));
  EXPECT_EQ(counters().fenced, 0u);
}

TEST_F(LogServiceTest, SilentProducerIsFenced) {
  auto client = session();
  const uint64_t log = create(*client, "a");
  auto first = producer(7, log);
  ASSERT_TRUE(first);
  for (int i = 0; i < 10; ++i) {
    let_time_pass(kLeaseMs / 5);
    ASSERT_TRUE(call(*client, service::kPingMethod, {}));
    ASSERT_TRUE(call(**first, service::kPingMethod, {})) << "a ping keeps the lease";
  }
  for (int i = 0; i < 10; ++i) {
    let_time_pass(kLeaseMs / 5);
    ASSERT_TRUE(call(*client, service::kPingMethod, {}));
  }
  EXPECT_TRUE((*first)->connection->broken());
  EXPECT_EQ(counters().fenced, 1u);
  EXPECT_FALSE(open(*client, "a").exclusive);
  EXPECT_TRUE(producer(8, log));
}

TEST_F(LogServiceTest, ProducerOfAnotherMembershipIsRefusedAndTheHolderStays) {
  auto client = session();
  const uint64_t log = create(*client, "a");
  auto first = producer(7, log);
  const ProducerHello hello{log, 2, Takeover::kSteal, {}};
  EXPECT_EQ(producer(8, hello).code(), ErrorCode::kConflict);
  EXPECT_FALSE(broken(**first));
}

TEST_F(LogServiceTest, ProducerWritesByTheServersCpuOnlyIntoItsLog) {
  auto client = session();
  const uint64_t log = create(*client, "a");
  auto first = producer(7, log);
  ASSERT_TRUE(first);
  const auto& granted = (*first)->producer;
  RingPosition position{granted.data.bytes, granted.start_lsn, granted.tail_lsn,
                        granted.incarnation, granted.salt};
  const std::string text = "one";
  const uint64_t payload = sizeof(LogEntryPrefix) + text.size();
  const PlannedEntry plan = plan_entry(position, payload, false).value();
  std::vector<std::byte> entry(entry_room(payload));
  std::memcpy(entry.data() + sizeof(EntryHeader) + sizeof(LogEntryPrefix), text.data(), 3);
  seal_entry(entry, plan, position, payload, 1);
  const auto write = [&](uint64_t offset, std::span<const std::byte> data) {
    std::vector<std::byte> request(24 + data.size());
    fabric::MessageWriter writer(request);
    writer.put(persist::PersistWriteHeader{persist::kPersistWriteMagic, 1});
    writer.put(persist::PersistWritePiece{offset, static_cast<uint32_t>(data.size()), 0});
    std::memcpy(request.data() + 24, data.data(), data.size());
    return call_raw(**first, persist::kPersistWriteMethod, request);
  };
  ASSERT_TRUE(write(plan.lsn, {entry.data(), plan.bytes}));
  EXPECT_EQ(write(kTestLog - 32, {entry.data(), 64}).code(), ErrorCode::kAccess);
  const auto room = call(**first, LogMethod::kMakeRoom, as_bytes(MakeRoomRequest{64}));
  ASSERT_TRUE(room) << room.error().to_string();
  EXPECT_EQ(call(**first, LogMethod::kMakeRoom, as_bytes(MakeRoomRequest{1 << 30})).code(),
            ErrorCode::kTooLarge);
  first->reset();
  let_time_pass(1);
  EXPECT_EQ(entries_of(host_->store(), "a"), (std::vector<TestEntry>{{1, "one"}}));
  auto second = producer(7, log);
  EXPECT_EQ(call(**second, LogMethod::kAppend, append_request(log, {"x"})).code(),
            ErrorCode::kProtocol);
  EXPECT_TRUE(broken(**second));
}

TEST_F(LogServiceTest, StopWalksWhatWasLandedAndRefusesNewClients) {
  auto client = session();
  const uint64_t log = create(*client, "a");
  auto first = producer(7, log);
  ASSERT_TRUE(append(*client, create(*client, "b"), {"x"}));
  host_->host().stop();
  EXPECT_EQ(try_session(3).code(), ErrorCode::kDisconnected);
  EXPECT_FALSE(host_->store().info(log)->exclusive);
  EXPECT_TRUE(broken(*client));
  EXPECT_TRUE(broken(**first));
  EXPECT_TRUE(host_->stop());
}

TEST_F(LogServiceTest, StopMakesDurableWhatWaitsForItsGroup) {
  auto client = session();
  const uint64_t log = create(*client, "a");
  std::optional<bool> answered;
  const auto append = [](Client& at, std::vector<std::byte> request,
                         std::optional<bool>& out) -> Task<void> {
    auto reply = co_await at.rpc->call(static_cast<uint16_t>(LogMethod::kAppend), request, 256);
    out = reply.has_value();
  };
  auto appending = append(*client, with_prefix(*client, append_request(log, {"entry"})), answered);
  appending.start();
  while (counters().shared_appends == 0) executor_.run_once();
  ASSERT_EQ(counters().group_commits, 0u);
  const auto before = pool_.pool().memory().stats();
  host_->host().stop();
  EXPECT_EQ(counters().group_commits, 1u);
  EXPECT_GT(pool_.pool().memory().stats().drains, before.drains);
  EXPECT_EQ(entries_of(host_->store(), "a"), (std::vector<TestEntry>{{1, "entry"}}));
  let_time_pass(1);
  EXPECT_EQ(answered, true);
  EXPECT_TRUE(host_->stop());
}

}  // namespace
}  // namespace pmstore::log
