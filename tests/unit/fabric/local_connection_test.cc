// The local provider's promises beyond what every provider's scenarios check.
#include "fabric/local/channel.h"
#include "fabric/local/region_table.h"
#include "tests/unit/fabric/local_pair.h"

namespace pmstore::fabric {
namespace {

TEST_F(LocalPair, ABatchIsCompleteWhenPostReturns) {
  client_memory_->set_word(0, 77);
  Batch batch;
  batch.write(client_memory_->at(0, 8), server_memory_->remote(16))
      .read(client_memory_->at(8, 8), server_memory_->remote(16));
  Completion completion;
  ASSERT_TRUE(connection_->post(batch, &completion));
  EXPECT_TRUE(completion.done());
  EXPECT_TRUE(completion.ok());
  EXPECT_EQ(server_memory_->word(16), 77u);
  EXPECT_EQ(client_memory_->word(8), 77u);
}

TEST_F(LocalPair, AFullImmediateRingIsBackPressureAndPostsNothing) {
  Batch one;
  one.write_immediate(client_memory_->at(0, 8), server_memory_->remote(0), 5);
  uint64_t posted = 0;
  Status status;
  while ((status = connection_->post(one, nullptr))) ++posted;
  EXPECT_EQ(status.code(), ErrorCode::kBackPressure);
  EXPECT_GE(posted, 256u);
  client_memory_->set_word(0, 1);
  EXPECT_FALSE(connection_->post(one, nullptr));
  EXPECT_EQ(server_memory_->word(0), 0u) << "a refused post must not move data";
  EXPECT_EQ(connection_->counters().doorbells, posted);
  turns(2);
  EXPECT_EQ(server_receiver_.immediates.size(), posted);
  EXPECT_TRUE(connection_->post(one, nullptr));
  EXPECT_EQ(server_memory_->word(0), 1u);
}

TEST_F(LocalPair, WhatHasArrivedIsKnownBeforeItIsLookedAt) {
  Connection& server_end = *acceptor_.connections[0];
  EXPECT_EQ(server_end.arrivals(), Arrivals::kNone);
  Batch batch;
  batch.write_immediate(client_memory_->at(0, 8), server_memory_->remote(0), 5);
  ASSERT_TRUE(connection_->post(batch, nullptr));
  EXPECT_EQ(server_end.arrivals(), Arrivals::kSome);
  EXPECT_EQ(connection_->arrivals(), Arrivals::kNone);
  turns(2);
  EXPECT_EQ(server_end.arrivals(), Arrivals::kNone);
}

TEST_F(LocalPair, ImmediatesWaitForTheFirstReceiver) {
  connection_->set_receiver(nullptr);
  Connection& server_end = *acceptor_.connections[0];
  for (uint32_t i = 0; i < 3; ++i) {
    Batch batch;
    batch.write_immediate(server_memory_->at(0, 0), client_memory_->remote(0), i);
    ASSERT_TRUE(server_end.post(batch, nullptr));
  }
  turns(3);
  acceptor_.connections.clear();  // and so does the disconnection, behind them
  turns(3);
  connection_->set_receiver(&client_receiver_);
  turns(2);
  EXPECT_EQ(client_receiver_.immediates, (std::vector<uint32_t>{0, 1, 2}));
  EXPECT_EQ(client_receiver_.disconnects.size(), 1u);
}

TEST_F(LocalPair, WhatWasSentBeforeTheEndArrivesBeforeTheDisconnection) {
  Batch batch;
  batch.write_immediate(client_memory_->at(0, 8), server_memory_->remote(0), 9);
  ASSERT_TRUE(connection_->post(batch, nullptr));
  connection_.reset();
  turns(2);
  EXPECT_EQ(server_receiver_.immediates, std::vector<uint32_t>{9});
  ASSERT_EQ(server_receiver_.disconnects.size(), 1u);
  EXPECT_EQ(server_receiver_.disconnects[0].code, ErrorCode::kDisconnected);
  turns(5);
  EXPECT_EQ(server_receiver_.disconnects.size(), 1u) << "told once";
}

struct DestroyingReceiver final : Receiver {
  std::unique_ptr<Connection>* victim = nullptr;
  int calls = 0;
  void on_immediate(uint32_t) override { go(); }
  void on_disconnect(const Error&) override { go(); }
  void go() {
    ++calls;
    victim->reset();
  }
};

TEST_F(LocalPair, AReceiverMayDestroyTheConnectionFromItsCalls) {
  DestroyingReceiver on_immediate;
  on_immediate.victim = &acceptor_.connections[0];
  acceptor_.connections[0]->set_receiver(&on_immediate);
  DestroyingReceiver on_disconnect;
  on_disconnect.victim = &connection_;
  connection_->set_receiver(&on_disconnect);
  Batch batch;
  batch.write_immediate(client_memory_->at(0, 8), server_memory_->remote(0), 9);
  ASSERT_TRUE(connection_->post(batch, nullptr));
  ASSERT_TRUE(connection_->post(batch, nullptr));
  turns(5);
  EXPECT_EQ(on_immediate.calls, 1) << "the second immediate has nobody to go to";
  EXPECT_EQ(on_disconnect.calls, 1);
  EXPECT_EQ(connection_, nullptr);
}

// As a client whose last work ends behind it: the session goes, and the device with it. What is
// read of it afterwards the address sanitizer sees.
TEST_F(LocalPair, AReceiverMayDestroyTheDeviceFromItsCalls) {
  struct : Receiver {
    std::unique_ptr<Connection> connection;
    std::unique_ptr<Device> device;
    void on_immediate(uint32_t) override {
      connection.reset();
      device.reset();
    }
    void on_disconnect(const Error&) override {}
  } last;
  last.device = open_local(executor_);
  last.connection = std::move(*executor_.run(last.device->connect(uri_, {})));
  last.connection->set_receiver(&last);
  Batch batch;
  batch.write_immediate(server_memory_->at(0, 0), client_memory_->remote(0), 1);
  ASSERT_TRUE(acceptor_.connections.back()->post(batch, nullptr));
  turns(3);
  EXPECT_EQ(last.device, nullptr);
  EXPECT_EQ(server_receiver_.disconnects.size(), 1u);
}

TEST_F(LocalPair, AViolationIsAnAccessErrorHereAndADisconnectionThere) {
  Batch batch;
  batch.write(client_memory_->at(0, 8), {server_memory_->remote(0).address, 12345});
  Completion completion;
  ASSERT_TRUE(connection_->post(batch, &completion));
  EXPECT_TRUE(completion.done());
  EXPECT_FALSE(completion.ok());
  EXPECT_EQ(connection_->why_broken().code, ErrorCode::kAccess);
  EXPECT_TRUE(client_receiver_.disconnects.empty()) << "told by polling, not from inside post()";
  turns(2);
  ASSERT_EQ(client_receiver_.disconnects.size(), 1u);
  EXPECT_EQ(client_receiver_.disconnects[0].code, ErrorCode::kAccess);
  ASSERT_EQ(server_receiver_.disconnects.size(), 1u);
  EXPECT_EQ(server_receiver_.disconnects[0].code, ErrorCode::kDisconnected);
}

TEST_F(LocalPair, AWithdrawnRegionIsOutOfReachAlsoWhenItsSlotIsUsedAgain) {
  auto region = std::make_unique<Memory>(*server_, 4096, kEverything);
  const RemoteAddress old = region->remote(0);
  region.reset();
  Memory again(*server_, 4096, kEverything);
  ASSERT_NE(again.remote(0).key, old.key);
  Batch batch;
  batch.read(client_memory_->at(0, 8), {again.remote(0).address, old.key});
  Completion completion;
  ASSERT_TRUE(connection_->post(batch, &completion));
  EXPECT_FALSE(completion.ok());
}

TEST_F(LocalPair, NativeFlushIsUnsupportedAndBreaksNothing) {
  Batch batch;
  batch.flush(8, server_memory_->remote(0));
  Status posted = connection_->post(batch, nullptr);
  ASSERT_FALSE(posted);
  EXPECT_EQ(posted.code(), ErrorCode::kUnsupported);
  EXPECT_FALSE(connection_->broken());
}

TEST_F(LocalPair, ATakenNameIsAnIoError) {
  KeepingAcceptor other;
  auto listener = server_->listen(uri_, other);
  ASSERT_FALSE(listener);
  EXPECT_EQ(listener.code(), ErrorCode::kIo);
  listener_.reset();
  EXPECT_TRUE(server_->listen(uri_, other)) << "the name is free again";
}

TEST_F(LocalPair, AHelloBeyondTheLimitIsRefusedAtTheSender) {
  const std::vector<std::byte> large(kMaxHelloBytes + 1);
  ConnectOptions options;
  options.hello = large;
  auto made = executor_.run(client_->connect(uri_, options));
  ASSERT_FALSE(made);
  EXPECT_EQ(made.code(), ErrorCode::kInvalidArgument);
}

TEST_F(LocalPair, ASilentListenerIsATimeout) {
  base::Executor never_run(clock_);
  auto silent = open_local(never_run);
  KeepingAcceptor acceptor;
  const Uri uri = fresh_local_uri();
  auto listener = silent->listen(uri, acceptor);
  ASSERT_TRUE(listener);
  const uint64_t before = clock_.now_ns();
  ConnectOptions options;
  options.timeout_ns = 1'000'000;
  auto made = executor_.run(client_->connect(uri, options));
  ASSERT_FALSE(made);
  EXPECT_EQ(made.code(), ErrorCode::kTimeout);
  EXPECT_GE(clock_.now_ns() - before, options.timeout_ns);
  EXPECT_LE(clock_.now_ns() - before, 2 * options.timeout_ns);
  never_run.run_once();
  EXPECT_TRUE(acceptor.connections.empty()) << "nobody is there any more";
  EXPECT_TRUE(acceptor.abandoned.empty()) << "on_hello was never asked";
}

TEST_F(LocalPair, AListenerThatGoesRefusesWhoWaits) {
  base::Executor never_run(clock_);
  auto silent = open_local(never_run);
  KeepingAcceptor acceptor;
  const Uri uri = fresh_local_uri();
  auto listener = silent->listen(uri, acceptor);
  ASSERT_TRUE(listener);
  auto close = [](base::Executor& executor, std::unique_ptr<Listener>& of) -> base::Task<void> {
    co_await executor.sleep_for(100'000);
    of.reset();
  };
  executor_.spawn(close(executor_, *listener));
  auto made = executor_.run(client_->connect(uri, {}));
  ASSERT_FALSE(made);
  EXPECT_EQ(made.code(), ErrorCode::kDisconnected);
}

TEST(RegionTable, KeysAreUniqueSpreadAndBounded) {
  RegionTable table;
  std::vector<std::byte> memory(64);
  std::vector<uint64_t> keys;
  for (size_t i = 0; i < RegionTable::kMaxRegions; ++i) {
    keys.push_back(table.add(memory, Access::kRemoteRead));
    ASSERT_NE(keys.back(), 0u);
  }
  EXPECT_EQ(table.add(memory, Access::kRemoteRead), 0u) << "full";
  table.remove(keys[100]);
  const uint64_t again = table.add(memory, Access::kRemoteRead);
  EXPECT_NE(again, 0u);
  EXPECT_NE(again, keys[100]);
  const auto address = reinterpret_cast<uintptr_t>(memory.data());
  EXPECT_EQ(table.find(keys[100], address, 8, Access::kRemoteRead).fault, AccessFault::kUnknownKey);
  EXPECT_EQ(table.find(again, address, 8, Access::kRemoteRead).fault, AccessFault::kNone);
  EXPECT_EQ(table.find(again, address, 64, Access::kRemoteRead).fault, AccessFault::kNone);
  EXPECT_EQ(table.find(again, address, 65, Access::kRemoteRead).fault, AccessFault::kOutOfBounds);
  EXPECT_EQ(table.find(again, address - 1, 8, Access::kRemoteRead).fault,
            AccessFault::kOutOfBounds);
  EXPECT_EQ(table.find(again, address, UINT64_MAX, Access::kRemoteRead).fault,
            AccessFault::kOutOfBounds);
  EXPECT_EQ(table.find(again, address, 8, Access::kRemoteWrite).fault, AccessFault::kNotGranted);
  EXPECT_EQ(table.find(0, address, 8, Access::kRemoteRead).fault, AccessFault::kUnknownKey);
  EXPECT_EQ(table.find(UINT64_MAX, address, 8, Access::kRemoteRead).fault,
            AccessFault::kUnknownKey);
}

TEST(EndpointDeathTest, AnInboxHoldsItsSlotsAndNoMore) {
  const auto endpoint = std::make_unique<Endpoint>();
  EXPECT_DEATH(endpoint->pop(), "empty inbox");
  for (uint32_t i = 0; i < Endpoint::kInboxSlots; ++i) endpoint->push(i);
  EXPECT_EQ(endpoint->room(), 0u);
  EXPECT_DEATH(endpoint->push(0), "there is room");
}

}  // namespace
}  // namespace pmstore::fabric
